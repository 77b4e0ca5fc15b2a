"""Decode's whole answer: what is the engines' business taken out, everything else as it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import EngineBroken
from gateway.wire.added import STEERING
from gateway.wire.choices import Choice, failed_end
from gateway.wire.errors import error_in, refused
from gateway.wire.usage import with_cached_tokens

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class UnaryAnswer:
    body: bytes
    usage: Mapping[str, Any] | None


def unary_answer(engine: str, body: bytes, cached_tokens: int | None = None) -> UnaryAnswer:
    """`cached_tokens` is prefill's figure, which takes the place of decode's; None leaves it.

    Raises EngineBroken if it is no answer or did not end well; what `refused` makes of an error under status 200.
    """
    try:
        if not body.isascii():
            str(body, "utf-8")  # the decoder looks into no string that it leaves raw
        fields = _FIELDS.decode(body)
        if (error := error_in(fields)) is not None:
            raise refused(engine, error)
        choices = msgspec.json.decode(fields.get("choices", b"[]"), type=list[Choice])
        usage = msgspec.json.decode(fields.get("usage", b"null"), type=dict[str, Any] | None)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise EngineBroken(f"engine {engine} answered with no completion: {e}", engine=engine) from None
    if not choices:
        raise EngineBroken(f"engine {engine} answered with no choice", engine=engine)
    if end := failed_end(choices):
        raise EngineBroken(f"engine {engine} ended the answer with finish_reason {end}", engine=engine)
    mended = with_cached_tokens(usage, cached_tokens) if usage is not None else None
    if STEERING.isdisjoint(fields) and mended is None:
        return UnaryAnswer(body, usage)
    kept: dict[str, Any] = {k: v for k, v in fields.items() if k not in STEERING}
    if mended is not None:
        kept["usage"] = mended
    return UnaryAnswer(msgspec.json.encode(kept), mended or usage)
