"""The same engine, reached in two ways: over a socket by the real client, in memory by the fake one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import EngineUnreachable
from gateway.transport.http import HttpEngineClient
from gateway.transport.port import EngineClient, ReplyStream
from tests.fakes.engine_client import FakeEngineClient
from tests.fakes.engine_server import engine_server
from tests.fakes.script import Script, Seen

SOON = 0.05
"""Seconds: a deadline that a test waits out."""
ENOUGH = 30.0
"""Seconds: no test comes near it unless something hangs. A machine may stand still for some of them."""


@dataclass
class Bench:
    """`play` sets what the engine answers; `seen` gives the calls that it got; `closed` is an engine that is not
    there."""

    client: EngineClient
    engine: Engine
    closed: Engine
    play: Callable[[Script], None]
    seen: Callable[[], list[Seen]]


@asynccontextmanager
async def over_http() -> AsyncIterator[Bench]:
    client = HttpEngineClient()
    await client.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    closed = Engine.at(f"http://127.0.0.1:{port}", Role.DECODE)
    async with engine_server() as server:

        def play(script: Script) -> None:
            server.play = lambda seen: script

        yield Bench(client, Engine.at(server.url, Role.DECODE), closed, play, lambda: server.calls)
        await client.aclose()


@asynccontextmanager
async def in_memory() -> AsyncIterator[Bench]:
    client = FakeEngineClient()
    engine, closed = (Engine.at(f"http://engine:{port}", Role.DECODE) for port in (1, 2))
    client.on(engine=closed.id, reply=EngineUnreachable(f"engine {closed.id} cannot be reached", engine=closed.id))

    def play(script: Script) -> None:
        client.on(engine=engine.id, reply=script)

    yield Bench(client, engine, closed, play, lambda: [seen for _, seen in client.calls])
    await client.aclose()


@pytest.fixture(params=[over_http, in_memory], ids=["http", "fake"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with request.param() as made:
        yield made


async def happens(event: asyncio.Event) -> None:
    """Waits for it, and fails where it does not come."""
    async with asyncio.timeout(ENOUGH):
        await event.wait()


async def first_of(reply: ReplyStream) -> tuple[bytes, Any]:
    """The first chunk, and the iterator of the rest."""
    rest = reply.chunks()
    return await anext(rest), rest
