"""How deep and how wide a body may be, told from its bytes: decoding it is what must not happen first."""

from __future__ import annotations

import re
from itertools import accumulate

from common.errors import MalformedBody

MAX_DEPTH = 128
"""Objects and lists inside each other. Python's JSON, in the engines, gives up at some thousands: with a 500."""
MAX_NESTED = 100_000
"""Objects and lists in one body, in all."""
MAX_FIELDS = 256
"""Top-level fields; the APIs have some eighty."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or what began as one and has no end: matched too, so that no byte of it is looked at again."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def check_shape(body: bytes) -> None:
    """Raises MalformedBody for what is nested too deeply or too often. What is not JSON passes: its reader says so."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= MAX_DEPTH:
        return
    left = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    if len(left) > 2 * MAX_NESTED:
        raise MalformedBody(
            f"the body is nested too deeply or too often: it has {len(left) // 2} lists and objects or more; "
            f"expected at most {MAX_NESTED}"
        )
    if max(accumulate(map(_STEP.__getitem__, left)), default=0) > MAX_DEPTH:
        raise MalformedBody(f"the body is nested too deeply; expected at most {MAX_DEPTH} levels")
