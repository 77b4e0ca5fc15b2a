"""Any ASGI application on a loopback port, in the test's own event loop. Simulated engines: `engines.sim.runner`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

GRACE = 1
"""Seconds that requests may take to end: a test that leaves one hanging does not hang itself."""


class _Server(uvicorn.Server):
    """Signals stay the test runner's, and it is told when to end instead of looking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.stop = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.ready.set()
        await self.stop.wait()


@asynccontextmanager
async def serving(app: Any, http: Any = "httptools") -> AsyncIterator[str]:
    """`http` is uvicorn's. Yields the base URL, once its lifespan has started; leaving waits for its end."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = uvicorn.Config(
            app, http=http, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=GRACE
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve([sock]))
        ready = asyncio.create_task(server.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            await task
            raise RuntimeError("the application did not start")
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.stop.set()
            await task
