"""An engine inside another program's event loop: for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from engines.sim.app import create_app
from engines.sim.engine import SimEngine
from engines.sim.server import SimProtocol


@asynccontextmanager
async def running(engine: SimEngine) -> AsyncIterator[str]:
    """Serves the engine on a loopback port of the system's choice; its base URL. `engine.port` is set.

    Leaving breaks off what still runs: a request that was made to hang does not hang its test.
    """
    with socket.create_server((engine.host, 0)) as sock:
        engine.port = sock.getsockname()[1]
        async with serving(create_app(engine), sock):
            yield f"http://{engine.host}:{engine.port}"


@asynccontextmanager
async def serving(app: Any, sock: socket.socket) -> AsyncIterator[None]:
    """Serves an application on a socket that listens; it may break connections off (`server.BREAK_OFF`)."""
    config = uvicorn.Config(app, http=SimProtocol, ws="none", lifespan="off", log_config=None, access_log=False)
    server = _Server(config)
    task = asyncio.create_task(server.serve([sock]))
    started = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield
    finally:
        started.cancel()
        server.end()
        await task


class _Server(uvicorn.Server):
    """Signals are somebody else's here, and it is told when to end instead of looking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.ready.set()
        await self._stop.wait()

    def end(self) -> None:
        self._stop.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """At once: there is nothing to be graceful about."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
