"""A connection pool that hands out no connection that the engine has already closed.

An engine closes a connection that stood idle (vLLM: after 5 s), and all of them when it restarts. That word may lie in
the kernel's buffer, not yet read by the event loop, at the very moment when the connection is taken for the next
request, which would then be lost though the engine is well. So each pooled connection is asked, by one system call,
whether anything has arrived on it: between two requests nothing may, so what arrived is its end, or nonsense. And once
one connection to an engine broke under a request, the others that stood idle then are not used again, and for a moment
each request gets a new one: the next attempt should not find out that they are as dead.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    import asyncio

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

KEEP_ALIVE = 4.0
"""Seconds that a connection may stand idle: below vLLM's `VLLM_HTTP_TIMEOUT_KEEP_ALIVE` of 5, by more than a busy
event loop may be late."""
DISTRUST_FOR = 1.0
"""Seconds after a connection broke in which none to that engine is used twice."""


class EngineConnector(aiohttp.TCPConnector):
    """`per_engine` bounds the connections to one engine, idle ones included; 0 means no bound."""

    def __init__(self, *, per_engine: int = 0) -> None:
        super().__init__(limit=0, limit_per_host=per_engine, keepalive_timeout=KEEP_ALIVE)
        self._known: WeakKeyDictionary[ResponseHandler, float] = WeakKeyDictionary()
        """When each connection was made, by the monotonic clock."""
        self._distrusted: dict[str, float] = {}
        """Engine -> connections made before this time are not used again."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """A connection from the pool that is still good, else a new one. It ends: each turn empties the pool by one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None, "a connection that was just made has a protocol"
            if protocol not in self._known:
                self._known[protocol] = time.monotonic()
                return connection
            if (
                self._trusts(req.url.authority, self._known[protocol])
                and protocol.transport is not None
                and not _has_news(protocol.transport)
            ):
                return connection
            connection.close()

    def _trusts(self, engine: str, made: float) -> bool:
        broke = self._distrusted.get(engine)
        return broke is None or (made > broke and time.monotonic() > broke + DISTRUST_FOR)

    def distrust(self, url: str) -> None:
        """A connection to the engine at this URL broke under a request."""
        self._distrusted[URL(url).authority] = time.monotonic()


def _has_news(transport: asyncio.Transport) -> bool:
    """Whether bytes, an end or an error wait to be read."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
