"""How a client's script tells what it saw: one JSON object on standard output, an entry for each thing it was asked.

    python use_….py BASE_URL API_KEY MODEL THING…

An entry is `{"saw": …}`, or `{"raised": {"is", "status", "message"}}` where the library raised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

BASE_URL, API_KEY, MODEL = sys.argv[1:4]

WEATHER = "What is the weather in Paris?"
PERSON = "Who is Ada?"


def tell(things: Mapping[str, Callable[[], Any]]) -> None:
    print(json.dumps({name: _entry(things[name]) for name in sys.argv[4:]}))


def _entry(thing: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"saw": thing()}
    except Exception as e:
        return {"raised": {"is": type(e).__name__, "status": _status(e), "message": str(e)}}


def _status(error: BaseException | None) -> int | None:
    """The HTTP status, from whichever error of the chain has one."""
    while error is not None:
        if isinstance(found := getattr(error, "status_code", None), int):
            return found
        error = error.__cause__ or error.__context__
    return None
