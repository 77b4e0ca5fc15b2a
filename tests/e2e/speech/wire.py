"""What goes over a connection, counted: a relay in front of a server, and a Redis server's own counters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import Redis

PIECE = 65536


@dataclass
class Counted:
    """`url` is the relay's. Bytes to the server behind it and from there, heads included."""

    url: str
    to: int = 0
    back: int = 0


@asynccontextmanager
async def counting(url: str) -> AsyncIterator[Counted]:
    """`url` may have a query: it is kept."""
    parts = urlsplit(url)
    held: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, onward = await asyncio.open_connection(parts.hostname, parts.port)
        held.update((writer, onward))
        await asyncio.gather(_pass(reader, onward, counted, "to"), _pass(behind, writer, counted, "back"))
        held.difference_update((writer, onward))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    counted = Counted(urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}")))
    try:
        yield counted
    finally:
        server.close()
        for writer in held:
            writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: Counted, way: str) -> None:
    """Until either side ends; the other is told."""
    try:
        while piece := await reader.read(PIECE):
            setattr(counted, way, getattr(counted, way) + len(piece))
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


class RedisCounter:
    """Bytes in and out of a Redis since it was last read, without those that reading costs."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._last = self._own = 0

    async def read(self) -> int:
        """Two looks at once tell what a look costs."""
        first, second = await self._total(), await self._total()
        spent, self._last, self._own = first - self._last - self._own, second, second - first
        return spent

    async def _total(self) -> int:
        stats = await self._client.info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])
