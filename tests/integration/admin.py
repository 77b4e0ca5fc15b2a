"""What tests of the admin API share."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.transport import awake
from tests.awaiting import until
from tests.integration.conftest import Pair

SHOWS_WITHIN = 30.0
"""Seconds in which an order must show on every replica. On a machine that is not busy it is less than 2."""
TOLD_WITHIN = 60.0
"""Seconds in which the next event must come."""


async def engine(pair: Pair, id_: str) -> dict[str, Any] | None:
    """An engine as a replica shows it; None if it is not there."""
    listed = (await pair.client.get("/admin/topology")).json()["engines"]
    return next((e for e in listed if e["id"] == id_), None)


async def until_engine(pair: Pair, id_: str, what: str, **fields: Any) -> dict[str, Any]:
    """The engine as soon as a replica shows it with these fields."""

    async def look() -> dict[str, Any] | None:
        found = await engine(pair, id_)
        return found if found is not None and fields.items() <= found.items() else None

    return await until(look, what, within=SHOWS_WITHIN)


async def until_gone(pair: Pair, id_: str, *, within: float = SHOWS_WITHIN) -> None:
    async def look() -> bool:
        return await engine(pair, id_) is None

    await until(look, f"engine {id_} is gone", within=within)


@dataclass(frozen=True)
class Told:
    """One server-sent event."""

    name: str
    id: str | None
    data: dict[str, Any]


class Listening:
    """An event stream, as it is read."""

    def __init__(self, reply: httpx.Response) -> None:
        self._lines = reply.aiter_lines()
        self.reply = reply

    async def next(self, *, within: float = TOLD_WITHIN) -> Told:
        """Skips what is no event. Raises StopAsyncIteration at the end of the stream."""
        fields: dict[str, str] = {}
        async with awake.within(within):
            while True:
                line = await anext(self._lines)
                if not line and "data" in fields:
                    return Told(fields["event"], fields.get("id"), json.loads(fields["data"]))
                name, _, value = line.partition(": ")
                if name:
                    fields[name] = value
                else:
                    fields.clear()

    async def until(self, event: str, **fields: Any) -> Told:
        """The next event of this kind with these fields."""
        while True:
            told = await self.next()
            if told.data.get("event") == event and fields.items() <= told.data.items():
                return told


@asynccontextmanager
async def listening(pair: Pair, path: str = "/admin/events", *, last: str | None = None) -> AsyncIterator[Listening]:
    headers = {} if last is None else {"last-event-id": last}
    async with pair.client.stream("GET", path, headers=headers) as reply:
        assert reply.status_code == 200, await reply.aread()
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield Listening(reply)
