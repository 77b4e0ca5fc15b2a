"""What an engine answers, as a script: played in memory by `engine_client`, over a socket by `engine_server`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


class _Cut:
    def __repr__(self) -> str:
        return "CUT"


CUT: Final = _Cut()
"""In a script: the connection breaks off here."""

Part = bytes | asyncio.Event | _Cut
"""Bytes that are sent, an event that is waited for, or the end of the connection."""


@dataclass(frozen=True)
class Script:
    """A reply: the `before` parts (no bytes) come ahead of its status line, `parts` are its body.

    Headers are lower case. A reply is streamed, without a length, unless its headers say one.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[asyncio.Event | _Cut] = ()


def json_reply(value: Any, status: int = 200) -> Script:
    """A whole reply."""
    body = json.dumps(value).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Script([body], status, headers)


def sse_reply(*events: Any, done: bool = True, before: Sequence[asyncio.Event | _Cut] = ()) -> Script:
    """A stream of server-sent events, a part each; anything that is a `Part` already stays as it is."""
    parts = [e if isinstance(e, Part) else f"data: {json.dumps(e)}\n\n".encode() for e in events]
    end: list[Part] = [b"data: [DONE]\n\n"] if done else []
    return Script([*parts, *end], 200, {"content-type": "text/event-stream; charset=utf-8"}, before)


@dataclass
class Seen:
    """One call as the engine saw it. `left` is set when the client goes before the end, `answered` at the end."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    left: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def leg(self) -> str | None:
        """`prefill` or `decode`, by the id that the gateway gave the call (`common.ids.leg_id`)."""
        _, _, leg = self.headers.get("x-request-id", "").rpartition("-")
        return leg or None
