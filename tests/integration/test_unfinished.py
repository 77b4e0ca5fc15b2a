"""Connections that must end: answered before their bodies were whole, idle behind them, or of HTTP/1.0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest
from httpx import URL

from gateway.api.protocol import MOST_HEADERS, BoundedProtocol, bounded
from tests.awaiting import until
from tests.integration.test_http import Exchange, exchange, hasty_exchange, seen
from tests.serving import serving

__all__ = ["exchange", "hasty_exchange"]
WITHIN = 0.3
"""Seconds for the rest of a body, where it does not come."""
PATIENCE = 60
"""Seconds after which a connection counts as one that nothing closes."""
LENGTH = b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n"
CHUNKS = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"
LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def hasty(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, whatever comes behind the headers."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(4 * WITHIN)
    length = [(b"content-length", b"6")] if scope["path"] != "/stream" else []
    await send({"type": "http.response.start", "status": 405, "headers": length})
    await send({"type": "http.response.body", "body": b"ans", "more_body": True})
    await send({"type": "http.response.body", "body": b"wer", "more_body": False})


PATIENT = bounded(max_header_bytes=4096, headers_within=PATIENCE, written_within=PATIENCE, on_stalled=lambda: None)


class Hasty(PATIENT):  # type: ignore[misc, valid-type]
    """Waits for a request, and then for no rest of it."""

    def on_response_complete(self) -> None:
        self.headers_within = WITHIN
        super().on_response_complete()


class Impatient(Hasty):
    """Keeps no idle connection for long either."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = WITHIN


class Watched(PATIENT):  # type: ignore[misc, valid-type]
    """Waits long for everything; a test looks at the last one that was made."""

    last: ClassVar[Watched]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = PATIENCE
        Watched.last = self


@asynccontextmanager
async def answered(
    request: bytes, http: type[BoundedProtocol] = Hasty
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which that request has its whole answer."""
    async with serving(hasty, http) as url:
        reader, writer = await asyncio.open_connection(URL(url).host, URL(url).port)
        writer.write(request)
        await asyncio.wait_for(reader.readuntil(b"answer"), PATIENCE)
        try:
            yield reader, writer
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize("request_", [LENGTH, CHUNKS], ids=["length", "chunks"])
async def test_the_rest_of_a_body_that_is_answered_already_is_not_waited_for(request_: bytes) -> None:
    async with answered(request_) as (reader, writer):
        writer.write(b"c")
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_one_that_sends_the_rest_byte_by_byte_is_cut_all_the_same() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"c")
            await writer.drain()
            await asyncio.sleep(WITHIN / 10)

    async with answered(LENGTH.replace(b"50", b"500000")) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), PATIENCE)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize(("request_", "rest"), [(LENGTH, b"x" * 50), (CHUNKS, b"cde\r\n0\r\n\r\n")])
async def test_a_rest_that_comes_in_time_is_followed_by_the_next_request(request_: bytes, rest: bytes) -> None:
    async with answered(request_, Watched) as (reader, writer):
        deadline = Watched.last._rest_deadline
        assert deadline is not None
        writer.write(rest)

        async def lifted() -> bool:
            return deadline.cancelled()

        await until(lifted, "the connection is not to be closed any more")
        writer.write(LAST)
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).endswith(b"answer")


@pytest.mark.parametrize("behind", [b"", b"GET /"], ids=["nothing", "half a request"])
async def test_what_is_idle_behind_such_a_rest_is_closed(behind: bytes) -> None:
    async with answered(LENGTH, Impatient) as (reader, writer):
        writer.write(b"x" * 50 + behind)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_what_is_not_idle_behind_such_a_rest_stays_open() -> None:
    """It came with the rest, and takes longer than an idle connection is kept."""
    async with answered(LENGTH, Watched) as (reader, writer):
        Watched.last.timeout_keep_alive = WITHIN
        writer.write(b"x" * 50 + LAST.replace(b"GET /", b"GET /slow"))
        assert b"answer" in await asyncio.wait_for(reader.read(), PATIENCE)


@pytest.mark.parametrize("more", [b"", b"connection: keep-alive\r\n"], ids=["plain", "keep-alive"])
@pytest.mark.parametrize("path", [b"/", b"/stream"], ids=["length", "no length"])
@pytest.mark.parametrize("version", [b"1.0", b"0.9"])
async def test_clients_that_know_no_chunks_get_none(version: bytes, path: bytes, more: bytes) -> None:
    async with answered(b"GET " + path + b" HTTP/" + version + b"\r\n" + more + b"\r\n") as (reader, _):
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


@pytest.mark.parametrize("status", [200, 400])
async def test_a_stream_of_the_gateway_over_http_1_0(exchange: Exchange, status: int) -> None:
    words = b'{"model":"sim","prompt":"x","max_tokens":%d,"stream":true}' % (3 if status == 200 else -1)
    head = b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(words)
    answer, _, body = (await exchange(head + words)).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert b"transfer-encoding" not in answer.lower()
    assert b"connection: close" in answer.lower()
    if status == 200:
        assert all(line.startswith(b"data: ") for line in body.split(b"\n\n") if line)
        assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("lines", [b"x: a\r\n" * 700, b":".join([b"a", b"\r\n"]) * (MOST_HEADERS + 1)])
async def test_many_short_headers_are_too_large(exchange: Exchange, lines: bytes) -> None:
    """By their bytes on the wire, line ends included, or by their number."""
    head = b"GET /livez HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n"
    assert seen(await exchange(head)) == (431, "headers_too_large")


async def test_as_many_headers_as_there_may_be(exchange: Exchange) -> None:
    lines = b"a: b\r\n" * (MOST_HEADERS - 2)
    answer = await exchange(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + lines + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_body_beside_the_hot_paths_is_not_waited_for_either(hasty_exchange: Exchange) -> None:
    head = b"POST /admin/engines HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    assert seen(await hasty_exchange(head)) == (408, "request_timeout")
