"""Decode's stream. Bytes pass through; an event is changed only if it has one of a few words in it.

In JSON a quote inside a string is escaped, so `"error"` with bare quotes can only be a key or a whole value: a model
that writes about errors costs nothing and changes nothing.

| in an event | what becomes of it |
| --- | --- |
| `[DONE]` | passed on; the stream is done, and nothing after it is |
| `error`, `"object": "error"`, a `finish_reason` error or abort | held back: the relay tells it in OpenAI's shape |
| `event: error` | the same, whatever its data are |
| no JSON, or no UTF-8 | held back: the engine is broken, and what follows is as little worth |
| `kv_transfer_params` and its like | taken out; every other field stays the bytes that came |
| `usage` | kept aside, passed on with prefill's `cached_tokens` |
| anything else, comments too | passed on |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from common.errors import DuetError, EngineBroken
from gateway.wire.added import STEERING
from gateway.wire.choices import Choice, failed_end
from gateway.wire.errors import error_in, refused
from gateway.wire.usage import with_cached_tokens

MAX_EVENT = 16 * 2**20
"""Bytes of one event."""

_END = re.compile(rb"(?:\n\n|\n\r\n?|\r\r\n?)[\r\n]*")
"""Two line ends in a row, and any more: a line ends with CR LF, LF or CR."""
_SHOWN = 80
_LINE = re.compile(rb"\r\n|\n|\r")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EventStream:
    """Feeds on what an engine sends, gives what a client may see. One for each stream.

    `done` is set by `[DONE]`. `error` is set by an event that says the engine failed, or that is none; that event and
    all after it are held back. `spoke` is whether the latest bytes had content in them, `answered` whether any had.
    `usage` is the last usage object; `cached_tokens`, if it was set, is prefill's figure for it.
    """

    def __init__(self, engine: str, *, max_event: int = MAX_EVENT) -> None:
        self._engine = engine
        self._max_event = max_event
        self._rest = bytearray()
        self._usage: bytes | None = None
        self._latest = (b"", b"")
        self.cached_tokens: int | None = None
        self.done = False
        self.error: DuetError | None = None
        self.spoke = False
        self.answered = False

    @property
    def usage(self) -> Mapping[str, Any] | None:
        return None if self._usage is None else msgspec.json.decode(self._usage)

    def feed(self, chunk: bytes) -> bytes:
        """The whole events that are now ready, maybe none. Raises EngineBroken for an event without end."""
        self.spoke = False
        if self.done or self.error is not None:
            return b""
        ready = self._whole_events(chunk)
        if not ready:
            return ready
        self._latest = (self._latest[1], ready)
        if _is_of_interest(ready):
            return self._each(ready)
        return ready if all(map(self._hears, payloads(ready))) else self._each(ready)

    def _hears(self, payload: bytes) -> bool:
        """Notes whether an event has content. False for one that is none."""
        try:
            if not payload.isascii():
                str(payload, "utf-8")  # the decoder looks into no string that it passes over
            choices = _choices(payload)
            if not choices:
                msgspec.json.decode(payload, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return False
        if any(map(_has_content, choices)):
            self.spoke = self.answered = True
        return True

    @property
    def complete(self) -> bool:
        """Whether the answer had its end, to judge by its last events, though `[DONE]` did not come. Of several choices
        one cannot tell, so they count as cut."""
        choices = [choice for event in payloads(b"".join(self._latest)) for choice in _choices(event)]
        ended = bool(choices) and choices[-1].finish_reason is not None and not any(c.index for c in choices)
        return ended and not self._rest and self.error is None

    @property
    def broken_off(self) -> DuetError:
        """What to say of a stream that is over and neither `done` nor `complete`. It may have been none at all: an
        error as plain JSON, or one whose event has no end."""
        last = b"".join(self._latest) + bytes(self._rest)
        for said in (_data_of(_LINE.split(bytes(self._rest))), last):
            try:
                error = self._failure(_FIELDS.decode(said))
            except (msgspec.DecodeError, RecursionError):
                continue
            if error is not None:
                return error
        return EngineBroken(f"engine {self._engine} ended its stream without [DONE]", engine=self._engine)

    def _whole_events(self, chunk: bytes) -> bytes:
        """What has come, up to its last event's end; the rest is kept.

        Nothing is copied where nothing waited and the chunk ends with an event, as it mostly does.
        """
        if not self._rest:
            cut = _last_end(chunk, 0)
            if cut == len(chunk):
                return chunk
            ready = chunk[:cut]
            self._rest += chunk[cut:]
        else:
            seen = max(0, len(self._rest) - 2)  # an end may have begun there
            self._rest += chunk
            cut = _last_end(self._rest, seen)
            ready = bytes(self._rest[:cut])
            del self._rest[:cut]
        if len(self._rest) > self._max_event:
            raise EngineBroken(
                f"engine {self._engine} sent an event of more than {self._max_event} bytes", engine=self._engine
            )
        return ready

    def _each(self, ready: bytes) -> bytes:
        out = []
        start = 0
        for end in _END.finditer(ready):
            event = ready[start : end.end()]
            start = end.end()
            out.append(self._put_right(event))
            if self.done or self.error is not None:
                break
        return b"".join(out)

    def _put_right(self, event: bytes) -> bytes:
        lines = _LINE.split(event)
        data = _data_of(lines)
        if data.strip() == b"[DONE]":
            self.done = True
            return event
        if any(line[6:].strip() == b"error" for line in lines if line.startswith(b"event:")):
            self.error = self._named_error(data)
            return b""
        if data.strip() and not self._hears(data):
            seen = data.strip()[:_SHOWN].decode("utf-8", "replace")
            self.error = EngineBroken(
                f"engine {self._engine} sent an event that is no JSON: {seen!r}", engine=self._engine
            )
            return b""
        if not _is_of_interest(event):
            return event
        try:
            fields = _FIELDS.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return event  # no JSON object: not ours to judge
        self.error = self._failure(fields)
        if self.error is not None:
            return b""
        mended = self._take_usage(fields)
        if STEERING.isdisjoint(fields) and not mended:
            return event
        others = b"".join(line + b"\n" for line in lines if line and not line.startswith(b"data:"))
        kept = msgspec.json.encode({k: v for k, v in (fields | mended).items() if k not in STEERING})
        return others + b"data: " + kept + b"\n\n"

    def _take_usage(self, fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        """Keeps an event's usage; returns it where it must be changed."""
        usage = bytes(fields.get("usage", b"null"))
        if not usage.startswith(b"{"):
            return {}
        try:
            mended = with_cached_tokens(msgspec.json.decode(usage), self.cached_tokens)
        except (msgspec.DecodeError, RecursionError):
            return {}  # a usage that is none: passed on, as any odd field is
        self._usage = usage if mended is None else msgspec.json.encode(mended)
        return {} if mended is None else {"usage": msgspec.Raw(self._usage)}

    def _named_error(self, data: bytes) -> DuetError:
        """Of an event that is an error by its name: its data may be an error object, what stands in one, or text."""
        try:
            said = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            said = data.decode("utf-8", "replace").strip()
        inner = said.get("error") if isinstance(said, dict) else None
        return refused(self._engine, said if inner is None else inner)

    def _failure(self, fields: Mapping[str, msgspec.Raw]) -> DuetError | None:
        try:
            error = error_in(fields)
            if error is not None:
                return refused(self._engine, error)
            end = failed_end(msgspec.json.decode(fields.get("choices", b"[]"), type=list[Choice]))
        except (msgspec.DecodeError, RecursionError):
            return None  # choices that are none: passed on, as any odd field is
        if end is None:
            return None
        return EngineBroken(f"engine {self._engine} ended the answer with finish_reason {end}", engine=self._engine)


class _Said(msgspec.Struct):
    """A choice, as far as it tells whether anything was said in it yet."""

    index: int = 0
    finish_reason: str | None = None
    delta: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    choices: list[_Said] = []


_event = msgspec.json.Decoder(_Event).decode


def says_nothing(events: bytes) -> bool:
    """Whether these whole events only open an answer: comments, pings, and chunks that name a role and say nothing."""
    return all(_is_opening(payload) for payload in payloads(events))


def _has_content(choice: _Said) -> bool:
    """Whether it tells that the engine goes on. A token may have no text of its own (half a character, a token that is
    not shown), but engines send no empty ones to keep a connection alive."""
    delta = choice.delta
    if choice.finish_reason is not None or delta is None:
        return True
    return any(v for k, v in delta.items() if k != "role") if "role" in delta else bool(delta)


def _is_opening(payload: bytes) -> bool:
    return payload.strip() != b"[DONE]" and all(
        c.finish_reason is None and c.delta is not None and not any(v for k, v in c.delta.items() if k != "role")
        for c in _choices(payload)
    )


def _choices(payload: bytes) -> list[_Said]:
    try:
        return _event(payload).choices
    except (msgspec.DecodeError, RecursionError):
        return []


def payloads(events: bytes) -> list[bytes]:
    """The data of each event that has any."""
    if events.count(b"\n") == 2 and events.endswith(b"\n\n") and events.startswith(b"data: ") and b"\r" not in events:
        return [events[6:-2]]  # one event of one line, as it mostly is
    found = []
    for event in _END.split(events):
        data = _data_of(_LINE.split(event))
        if data:
            found.append(data)
    return found


def _data_of(lines: list[bytes]) -> bytes:
    return b"\n".join(line[5:] for line in lines if line.startswith(b"data:"))


def _is_of_interest(data: bytes) -> bool:
    """Whether there may be something to do, told by words that no text of a model can have in it (but the last two)."""
    return (
        b'"error"' in data
        or b'"abort"' in data
        or b'_transfer_params"' in data
        or b'"usage"' in data
        or b"[DONE]" in data
        or b"event:" in data
    )


def _last_end(data: bytes | bytearray, start: int) -> int:
    """Where the last whole event ends, if that is after `start`; 0 if there is none."""
    if data.endswith(b"\n\n"):
        return len(data)
    last = max(data.rfind(pair, start) for pair in (b"\n\n", b"\n\r", b"\r\r"))
    if last < 0:
        return 0
    end = last + 2
    return end + 1 if data[end : end + 1] == b"\n" else end
