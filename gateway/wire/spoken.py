"""Decode's whole answer as OpenAI's with audio: `message.audio` in place of `message.content`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import EngineBroken
from gateway.wire.usage import with_audio_tokens

_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields).decode
_encode = msgspec.json.encode


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_answer = msgspec.json.Decoder(_Answer).decode


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says, and whether it calls tools instead of speaking."""

    text: str
    calls_tools: bool


@dataclass(frozen=True, slots=True)
class Audio:
    """`sound` is encoded as the client wants it; `frames` of codes it was made of; `expires_at` in epoch seconds."""

    id: str
    sound: bytes
    transcript: str
    expires_at: int
    frames: int


def said(engine: str, body: bytes) -> Said:
    """Raises EngineBroken for a body that is no chat answer."""
    try:
        message = _answer(body).choices[0].message
    except (msgspec.DecodeError, IndexError) as e:
        raise EngineBroken(f"engine {engine} answered with no chat message: {e}", engine=engine) from None
    return Said(message.content or "", bool(message.tool_calls))


def with_audio(body: bytes, usage: Mapping[str, Any] | None, audio: Audio) -> tuple[bytes, Mapping[str, Any] | None]:
    """The answer, one that `said` could read, with its sound; and its usage."""
    fields = _fields(body)
    choice, *_ = msgspec.json.decode(fields["choices"], type=list[_Fields])
    heard = {
        "id": audio.id,
        "data": b64encode(audio.sound).decode("ascii"),
        "transcript": audio.transcript,
        "expires_at": audio.expires_at,
    }
    message = {**_fields(choice["message"]), "content": None, "audio": heard}
    told = with_audio_tokens(usage, audio.frames) if usage is not None else None
    kept: dict[str, Any] = {**fields, "choices": [{**choice, "message": message}]}
    return _encode(kept if told is None else {**kept, "usage": told}), told
