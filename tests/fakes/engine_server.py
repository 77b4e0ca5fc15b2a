"""An engine behind a socket: plays scripts over HTTP/1.1, written by hand so that every byte is as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.fakes.script import CUT, Script, Seen


@dataclass
class EngineServer:
    """`play` says what is answered to a call; `calls` has each one, `connections` how many were accepted.

    A script's `before` and `parts` are as in memory. `raw`, if set, is sent in place of any reply.
    """

    play: Callable[[Seen], Script] = lambda seen: Script()
    raw: bytes | None = None
    calls: list[Seen] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (seen := await _read(reader)) is not None:
                self.calls.append(seen)
                if not await self._answer(seen, reader, writer):
                    break
        except ConnectionError:
            pass  # the client is gone: `left` says so
        finally:
            writer.close()

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection lives on."""
        gone = asyncio.create_task(reader.read(1))  # between the request and the end of the reply: only an end
        playing = asyncio.create_task(self._play(seen, writer))
        try:
            await asyncio.wait({gone, playing}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done() and not isinstance(playing.exception(), ConnectionError):
                return playing.result()
            seen.left.set()
            return False
        finally:
            for task in (gone, playing):
                task.cancel()
            await asyncio.gather(gone, playing, return_exceptions=True)

    async def _play(self, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        if self.raw is not None:
            writer.write(self.raw)
            await writer.drain()
            return False
        script = self.play(seen)
        for part in script.before:
            if part is CUT:
                return False
            await part.wait()  # type: ignore[union-attr]
        chunked = "content-length" not in script.headers
        headers = {**script.headers, **({"transfer-encoding": "chunked"} if chunked else {})}
        lines = [f"HTTP/1.1 {script.status} {HTTPStatus(script.status).phrase}"]
        lines += [f"{name.title()}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for part in script.parts:
            if part is CUT:
                return False
            if isinstance(part, asyncio.Event):
                await part.wait()
            elif isinstance(part, bytes) and part:
                writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        seen.answered.set()
        return True


async def _read(reader: asyncio.StreamReader) -> Seen | None:
    """The next request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Seen(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def engine_server() -> AsyncIterator[EngineServer]:
    """On a free loopback port. Leaving ends every connection."""
    engine = EngineServer()
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await engine.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the test; asyncio would log it
        finally:
            running.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    engine.url = f"http://{host}:{port}"
    try:
        yield engine
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
