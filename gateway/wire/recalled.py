"""Earlier answers that messages refer to by their audio: `{"role": "assistant", "audio": {"id": "audio_…"}}`.

No engine knows these ids. What the answer said takes the place of the message's content, where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from common.errors import BadRequest
from gateway.wire.request import CHAT, ClientRequest, shown

_Fields = dict[str, msgspec.Raw]
_messages = msgspec.json.Decoder(list[_Fields]).decode
_NO_CONTENT = (b"null", b'""', b"[]")


class _Audio(msgspec.Struct):
    id: str


_audio = msgspec.json.Decoder(_Audio).decode


@dataclass(frozen=True, slots=True)
class Recalled:
    """One reference: in which message of the request, and to what."""

    message: int
    audio_id: str

    @property
    def param(self) -> str:
        return f"messages[{self.message}].audio.id"


def recalled(request: ClientRequest) -> tuple[Recalled, ...]:
    """All references, in order. Raises BadRequest for one that has no id."""
    raw = request.fields.get("messages")
    if request.endpoint != CHAT or raw is None or b'"audio"' not in bytes(raw):
        return ()
    found = []
    for at, message in enumerate(_read(raw)):
        audio = message.get("audio", msgspec.Raw(b"null"))
        if bytes(audio) == b"null" or bytes(message.get("role", b"")) != b'"assistant"':
            continue
        try:
            found.append(Recalled(at, _audio(audio).id))
        except msgspec.DecodeError:
            param = f"messages[{at}].audio"
            raise BadRequest(f'{param} is {shown(audio)}; expected {{"id": "audio_…"}}', param=param) from None
    return tuple(found)


def with_transcripts(request: ClientRequest, said: Mapping[int, str]) -> ClientRequest:
    """The request with what messages, by their place, said."""
    messages: list[dict[str, Any]] = [dict(message) for message in _read(request.fields["messages"])]
    for at, text in said.items():
        message = messages[at]
        del message["audio"]
        if bytes(message.get("content", b"null")) in _NO_CONTENT:
            message["content"] = text
    fields = {**request.fields, "messages": msgspec.Raw(msgspec.json.encode(messages))}
    return replace(request, fields=fields)


def _read(messages: msgspec.Raw) -> list[_Fields]:
    """Empty for what is no list of messages: the engine says so."""
    try:
        return _messages(messages)
    except (msgspec.DecodeError, RecursionError):
        return []
