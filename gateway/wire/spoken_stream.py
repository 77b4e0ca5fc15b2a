"""Decode's stream as OpenAI's with audio: text becomes a transcript, sound goes between, the end waits for both.

| in decode's stream | in the client's |
| --- | --- |
| the chunk that names a role | the same, `content` null |
| the first text | `delta: {content: null, audio: {id, transcript}}` |
| more text | `delta: {audio: {transcript}}` |
| - | `delta: {audio: {data}}`, base64, from then on |
| `finish_reason`, usage, `[DONE]` | held back; behind the sound and `{audio: {expires_at}}` |
| everything else of a chunk, tool calls, `logprobs` and `token_ids` say | passed on as it comes |

Clients join what comes: so each thing is said once, and each piece of data is whole base64 by itself.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from common.errors import DuetError
from gateway.wire.errors import DONE, stream_error
from gateway.wire.sse import payloads
from gateway.wire.usage import with_audio_tokens

_Fields = dict[str, msgspec.Raw]
_NULL = msgspec.Raw(b"null")
_NOTHING = (b"null", b'""', b"[]")
_ENVELOPE = ("id", "object", "created", "model", "service_tier", "system_fingerprint")
"""What all chunks of one answer have in common."""
_END = ("index", "finish_reason", "stop_reason")
"""What a choice has to say at its end. All else of its last chunk is the last token's."""

_fields = msgspec.json.Decoder(_Fields).decode
_choices = msgspec.json.Decoder(list[_Fields]).decode
_text = msgspec.json.Decoder(str | None).decode
_encode = msgspec.json.encode


class SpokenStream:
    """One answer's. `text` takes whole events of decode's stream, `data` sound, `end` says how both ended."""

    def __init__(self, audio_id: str, *, include_usage: bool) -> None:
        self.audio_id = audio_id
        self.opened = False
        """Whether the client has the audio's id: sound may follow."""
        self.calls_tools = False
        self._said: list[str] = []
        self._include_usage = include_usage
        self._envelope: dict[str, Any] = {}
        self._held: list[dict[str, Any]] = []
        self._total: _Fields = {}
        self._usage: Mapping[str, Any] | None = None
        self._around: tuple[bytes, bytes] | None = None

    @property
    def transcript(self) -> str:
        return "".join(self._said)

    def text(self, events: bytes) -> bytes:
        """What of these events may go on now, maybe nothing."""
        return b"".join(self._event(payload) for payload in payloads(events) if payload.strip() != b"[DONE]")

    def data(self, pcm: bytes) -> bytes:
        """`pcm` is a multiple of 6 bytes, but for the last one of an answer."""
        before = b"" if self.opened else self._open("")
        if self._around is None:
            whole = self._chunk({"audio": {"data": "~"}})
            head, _, tail = whole.rpartition(b"~")  # the last: a model's name before it may have one
            self._around = head, tail
        return before + self._around[0] + b64encode(pcm) + self._around[1]

    def end(self, frames: int, *, expires_at: int | None, error: DuetError | None = None) -> bytes:
        """All that is left. `frames` were spoken; `expires_at` is in epoch seconds, None where nothing was spoken to
        refer to. An `error` comes behind the whole text."""
        out = []
        if expires_at is not None:
            out += [b"" if self.opened else self._open(""), self._chunk({"audio": {"expires_at": expires_at}})]
        out += [_sse(chunk) for chunk in self._held]
        usage = self.usage(frames)
        if usage is not None:
            out.append(_sse({**self._envelope, **self._total, "choices": [], "usage": usage}))
        out.append(DONE if error is None else stream_error(error))
        return b"".join(out)

    def usage(self, frames: int) -> Mapping[str, Any] | None:
        """The answer's usage with its sound; None where decode told none."""
        return None if self._usage is None else with_audio_tokens(self._usage, frames)

    def _event(self, payload: bytes) -> bytes:
        try:
            fields = _fields(payload)
            choices = _choices(fields["choices"])
        except (msgspec.DecodeError, KeyError):
            return _as_it_came(payload)  # no chunk: not ours to judge
        self._envelope = self._envelope or {name: fields[name] for name in _ENVELOPE if name in fields}
        if choices:
            try:
                return self._choice(fields, choices[0])
            except msgspec.DecodeError:
                return _as_it_came(payload)  # a delta that is none: as above
        usage = msgspec.json.decode(fields.get("usage", _NULL))
        if usage and isinstance(usage, dict):
            self._usage, self._total = usage, fields
        return b""

    def _choice(self, fields: _Fields, choice: _Fields) -> bytes:
        """One chunk of text: without its end, which is held."""
        delta: dict[str, Any] = dict(_fields(choice.get("delta", msgspec.Raw(b"{}"))))
        said = _text(delta.pop("content", _NULL))
        self.calls_tools |= bytes(delta.get("tool_calls", _NULL)) not in _NOTHING
        if "role" in delta:
            delta["content"] = None
        if said:
            delta |= self._heard(said)
        if bytes(choice.get("finish_reason", _NULL)) == b"null":
            return _sse({**fields, "choices": [{**choice, "delta": delta}]})
        return self._last(fields, choice, delta)

    def _last(self, fields: _Fields, choice: _Fields, delta: dict[str, Any]) -> bytes:
        """The last chunk is two: its end is held, and what there is of a token goes on now, with all that is said of it
        once."""
        end = {name: choice[name] for name in _END if name in choice}
        common = {name: fields[name] for name in (*_ENVELOPE, "usage") if name in fields}
        self._held.append({**common, "choices": [{**end, "delta": {}, "logprobs": None}]})
        token = {name: value for name, value in choice.items() if name not in (*_END, "delta")}
        once = [value for name, value in fields.items() if name not in (*common, "choices")]
        if not any(map(_says, (*delta.values(), *token.values(), *once))):
            return b""
        at = {"index": choice["index"]} if "index" in choice else {}
        return _sse({**fields, "choices": [{**at, **token, "delta": delta, "finish_reason": None}]})

    def _heard(self, said: str) -> dict[str, Any]:
        self._said.append(said)
        if self.opened:
            return {"audio": {"transcript": said}}
        self.opened = True
        return {"content": None, "audio": {"id": self.audio_id, "transcript": said}}

    def _open(self, said: str) -> bytes:
        return self._chunk(self._heard(said))

    def _chunk(self, delta: Mapping[str, Any]) -> bytes:
        chunk: dict[str, Any] = {
            **self._envelope,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        }
        return _sse({**chunk, "usage": None} if self._include_usage else chunk)


def _says(value: Any) -> bool:
    """Whether there is anything in a field's value."""
    return bytes(value) not in _NOTHING if isinstance(value, msgspec.Raw) else bool(value)


def _as_it_came(payload: bytes) -> bytes:
    """An event of as many lines."""
    return b"".join(b"data: " + line.strip() + b"\n" for line in payload.strip().split(b"\n")) + b"\n"


def _sse(value: Any) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"
