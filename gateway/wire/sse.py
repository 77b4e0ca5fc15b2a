"""Decode's stream. Bytes pass through; an event is looked at only if it has one of a few words in it.

In JSON a quote inside a string is escaped, so `"error"` with bare quotes can only be a key or a whole value: a model
that writes about errors costs nothing and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from common.errors import DuetError, EngineBroken
from gateway.wire.added import STEERING
from gateway.wire.errors import refused

MAX_EVENT = 16 * 2**20
"""Bytes of one event."""

_LOOK = re.compile(rb'"error"|_transfer_params"|"usage": ?\{|\[DONE\]')
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class EventStream:
    """Feeds on what an engine sends, gives what a client may see. One for each stream.

    `done` is set by `[DONE]`; nothing after it is passed on. `error` is set by an error event or a choice that ended
    with "error": that event and all after it are held back, and whoever relays says it in OpenAI's shape. `usage` is
    the last usage object.
    """

    def __init__(self, engine: str, *, max_event: int = MAX_EVENT) -> None:
        self._engine = engine
        self._max_event = max_event
        self._rest = b""
        self.done = False
        self.error: DuetError | None = None
        self._usage: bytes | None = None

    @property
    def usage(self) -> Mapping[str, Any] | None:
        return None if self._usage is None else msgspec.json.decode(self._usage)

    def feed(self, chunk: bytes) -> bytes:
        """The whole events that are now ready, maybe none. Raises EngineBroken for an event without end."""
        if self.done or self.error is not None:
            return b""
        data = self._rest + chunk if self._rest else chunk
        cut = _last_end(data)
        self._rest = data[cut:]
        if len(self._rest) > self._max_event:
            raise EngineBroken(
                f"engine {self._engine} sent an event of more than {self._max_event} bytes", engine=self._engine
            )
        ready = data[:cut] if cut < len(data) else data
        return ready if _LOOK.search(ready) is None else self._each(ready)

    def _each(self, ready: bytes) -> bytes:
        out = []
        start = 0
        for end in _END.finditer(ready):
            event = ready[start : end.end()]
            start = end.end()
            if _LOOK.search(event) is not None:
                event = self._put_right(event)
            out.append(event)
            if self.done or self.error is not None:
                break
        return b"".join(out)

    def _put_right(self, event: bytes) -> bytes:
        data = b"\n".join(line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:"))
        if data.strip() == b"[DONE]":
            self.done = True
            return event
        try:
            fields = _FIELDS.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return event  # no JSON object: not ours to judge
        failure = self._failure(fields)
        if failure is not None:
            self.error = failure
            return b""
        usage = bytes(fields.get("usage", b"null"))
        if usage != b"null":
            self._usage = usage
        if STEERING.isdisjoint(fields):
            return event
        kept = {k: v for k, v in fields.items() if k not in STEERING}
        return b"data: " + msgspec.json.encode(kept) + b"\n\n"

    def _failure(self, fields: Mapping[str, msgspec.Raw]) -> DuetError | None:
        try:
            error = msgspec.json.decode(fields.get("error", b"null"))
            choices = msgspec.json.decode(fields.get("choices", b"[]"), type=list[_Choice])
        except msgspec.DecodeError:
            return None
        if error is not None:
            return refused(self._engine, error if isinstance(error, dict) else {"message": str(error)})
        if any(choice.finish_reason == "error" for choice in choices):
            return EngineBroken(f"engine {self._engine} ended the answer with finish_reason error", engine=self._engine)
        return None


def _last_end(data: bytes) -> int:
    """Where the last whole event ends; 0 if there is none."""
    if data.endswith(b"\n\n"):
        return len(data)
    ends = [
        data.rfind(end) + len(end)
        for end in ((b"\n\n", b"\r\n\r\n", b"\r\r") if b"\r" in data else (b"\n\n",))
        if end in data
    ]
    return max(ends, default=0)
