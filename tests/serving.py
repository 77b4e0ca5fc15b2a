"""Any ASGI application on a loopback port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals stay the test runner's


@asynccontextmanager
async def serving(app: Any, sock: socket.socket | None = None, *, http: Any = "httptools") -> AsyncIterator[str]:
    """The base URL, once the application's lifespan has started. Leaving waits for its end.

    What still runs then is given half a second: a test that leaves a request hanging must not hang itself.
    """
    sock = sock if sock is not None else bound()
    config = uvicorn.Config(
        app, log_config=None, http=http, lifespan="auto", access_log=False, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([sock]))
    while not server.started:
        if task.done():
            task.result()
            raise RuntimeError("the application did not start")
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def bound() -> socket.socket:
    """A socket on a free loopback port."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock
