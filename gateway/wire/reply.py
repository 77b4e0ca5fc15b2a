"""Decode's whole answer: what is the engines' business taken out, everything else as it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import EngineBroken
from gateway.wire.added import STEERING
from gateway.wire.errors import refused

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class UnaryAnswer:
    body: bytes
    usage: Mapping[str, Any] | None


def unary_answer(engine: str, body: bytes) -> UnaryAnswer:
    """Raises EngineBroken if it is no answer, EngineRefused if it is an error under a good status."""
    try:
        fields = _FIELDS.decode(body)
        choices = msgspec.json.decode(fields.get("choices", b"[]"), type=list[_Choice])
        usage = msgspec.json.decode(fields.get("usage", b"null"), type=dict[str, Any] | None)
        error = msgspec.json.decode(fields.get("error", b"null"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise EngineBroken(f"engine {engine} answered with no completion: {e}", engine=engine) from None
    if isinstance(error, dict):
        raise refused(engine, error)
    if not choices:
        raise EngineBroken(f"engine {engine} answered with no choice", engine=engine)
    if any(choice.finish_reason == "error" for choice in choices):
        raise EngineBroken(f"engine {engine} ended the answer with finish_reason error", engine=engine)
    if STEERING.isdisjoint(fields):
        return UnaryAnswer(body, usage)
    return UnaryAnswer(msgspec.json.encode({k: v for k, v in fields.items() if k not in STEERING}), usage)
