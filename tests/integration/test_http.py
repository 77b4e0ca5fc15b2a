"""What comes in before it is a request: nonsense, endless headers, bodies that never come. Each has OpenAI's shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from httpx import URL

from gateway.api.asgi import Gateway
from gateway.api.protocol import BoundedProtocol, bounded
from gateway.bootstrap import build
from gateway.settings import Settings
from tests.integration.conftest import World
from tests.integration.test_errors import error_of
from tests.serving import serving

CODING = "unknown_transfer_coding"
Exchange = Callable[..., Awaitable[bytes]]
PATIENT, HASTY = 60.0, 0.3
"""Seconds that headers, and each part of a body, may take: so many that a machine which is busy with other things does
not miss them, or so few that a test can wait for their end."""
APART = 0.03
"""Seconds between two parts that are sent, so that each arrives by itself."""


@pytest.fixture
async def exchange(world: World) -> AsyncIterator[Exchange]:
    """Sends bytes, in parts, on a connection of their own and gives all that comes back until it is closed."""
    async with exchanging(world, PATIENT) as talk:
        yield talk


@pytest.fixture
async def hasty_exchange(world: World) -> AsyncIterator[Exchange]:
    """The same with a gateway that waits HASTY for what does not come."""
    async with exchanging(world, HASTY) as talk:
        yield talk


@asynccontextmanager
async def exchanging(world: World, within: float) -> AsyncIterator[Exchange]:
    await world.engines()
    assert world.prefill is not None
    assert world.decode is not None
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        prefill=(world.prefill[1],),
        decode=(world.decode[1],),
        redis_url=world.redis_url,
        redis_prefix=world.prefix,
        receive_timeout=within,
    )
    gateway = build(settings)
    http = protocol(gateway, headers_within=within, written_within=PATIENT)

    async def talk(*sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(URL(url).host, URL(url).port)
        for part in sent:
            writer.write(part)
            await asyncio.sleep(APART)
        try:
            return await asyncio.wait_for(reader.read(), PATIENT)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async with serving(gateway, http) as url:
        yield talk


def protocol(gateway: Gateway, *, headers_within: float, written_within: float) -> type[BoundedProtocol]:
    return bounded(
        max_header_bytes=4096,
        headers_within=headers_within,
        written_within=written_within,
        on_stalled=gateway.metrics.stalled.inc,
    )


def seen(answer: bytes) -> tuple[int, str | None]:
    """Status and code of an error reply, whose shape is checked."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    error: dict[str, Any] = error_of(json.loads(body))
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"\x16\x03\x01 this is TLS\r\n\r\n", 400, "malformed_request"),
        (b"GET /health HTTP/9.9\r\n\r\n", 400, "malformed_request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request"),
        (b"CONNECT engine:8000 HTTP/1.1\r\nhost: x\r\n\r\nabc", 405, "method_not_allowed"),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n", 400, "malformed_request"),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n{}", 501, CODING),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, CODING),
        (
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            400,
            "malformed_request",
        ),
        (b"POST /metrics HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}zz", 400, "malformed_request"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 5000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 90000, 431, "headers_too_large"),
    ],
    ids=[
        *(
            "tls",
            "version",
            "HTTP/2",
            "proxy",
            "length",
            "coding",
            "coding and chunks",
            "chunk size",
            "chunk end",
            "header",
            "url",
            "endless header",
        ),
    ],
)
async def test_what_is_no_request_is_refused(exchange: Exchange, sent: bytes, status: int, code: str) -> None:
    assert seen(await exchange(sent)) == (status, code)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: ",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{",
    ],
    ids=["header", "body"],
)
async def test_what_comes_too_slowly_is_refused(hasty_exchange: Exchange, sent: bytes) -> None:
    assert seen(await hasty_exchange(sent)) == (408, "request_timeout")


CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
WORDS = b'{"model":"sim","prompt":"x","max_tokens":1}'


@pytest.mark.parametrize(
    "behind", [b"a: b\r\n" * 1000, b"a: " + b"b" * 5000, b"1;" + b"x" * 5000], ids=["many", "long", "chunk"]
)
async def test_what_is_behind_or_beside_a_body_is_bounded_as_headers_are(exchange: Exchange, behind: bytes) -> None:
    start = CHUNKED + b"\r\n%x\r\n%s\r\n" % (len(WORDS), WORDS)
    last = b"" if behind.startswith(b"1;") else b"0\r\n"
    assert seen(await exchange(start, last + behind[:4000], behind[4000:])) == (431, "headers_too_large")


async def test_a_header_behind_the_body_is_none_of_the_requests(exchange: Exchange) -> None:
    chunks = b"\r\n%x\r\n%s\r\n0\r\n" % (len(WORDS), WORDS)
    head = CHUNKED + b"content-type: text/plain\r\n"
    trailer = b"content-type: application/json\r\n\r\n"
    assert seen(await exchange(head + chunks + trailer))[0] == 415


@pytest.mark.parametrize("behind", [b"nonsense\r\n\r\n", CHUNKED.replace(b"chunked", b"gzip") + b"\r\n"])
async def test_a_request_with_nonsense_behind_it_hears_of_it(exchange: Exchange, behind: bytes) -> None:
    whole = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(WORDS), WORDS)
    assert seen(await exchange(whole + behind))[0] in (400, 501)


async def test_a_good_request_is_answered_and_the_next_on_the_same_connection_too(exchange: Exchange) -> None:
    one = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    answer = await exchange(one + one.replace(b"host: x", b"host: x\r\nconnection: close"))
    assert answer.count(b"200 OK") == 2


H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
WEBSOCKET = (
    b"connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
LAST = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("cut", [10, 60, 150, 330, 10_000])
async def test_a_body_behind_an_offer_of_another_protocol_is_read(
    exchange: Exchange, offer: bytes, chunked: bool, cut: int
) -> None:
    """Some clients offer HTTP/2 with each request. What is offered need not be taken."""
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(WORDS), WORDS) if chunked else WORDS
    said = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(WORDS)
    sent = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + offer + said + b"\r\n\r\n" + framed
    answer = await exchange((sent + LAST)[:cut], (sent + LAST)[cut:])
    assert answer.count(b"200 OK") == 2, answer
    assert b'"choices"' in answer


@pytest.mark.parametrize(("path", "status"), [(b"/v1/completions", 405), (b"/v1/realtime", 404), (b"/livez", 200)])
async def test_a_websocket_is_told_in_openais_shape_that_there_is_none(
    exchange: Exchange, path: bytes, status: int
) -> None:
    answer = await exchange(b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n" + WEBSOCKET + b"\r\n", LAST)
    head, _, rest = answer.partition(b"HTTP/1.1 200 OK\r\n") if status != 200 else (answer, b"", b"")
    assert int(head.split()[1]) == status
    if status != 200:
        assert seen(head)[0] == status
        assert rest, "the connection goes on"


async def test_many_offers_on_one_connection(exchange: Exchange) -> None:
    one = b"GET /livez HTTP/1.1\r\nhost: x\r\n" + H2C + b"\r\n"
    assert (await exchange(one * 300 + LAST)).count(b"200 OK") == 301


async def test_an_offer_hides_no_endless_header(exchange: Exchange) -> None:
    head = b"GET /health HTTP/1.1\r\nhost: x\r\n" + H2C + b"x-a: " + b"a" * 5000 + b"\r\n\r\n"
    assert seen(await exchange(head)) == (431, "headers_too_large")


@pytest.mark.parametrize("parts", [1, 2, 7])
async def test_a_long_body_is_no_long_header(exchange: Exchange, parts: int) -> None:
    """Whole bodies, and the ends of bodies, arrive in pieces far longer than headers may be."""
    body = json.dumps({"model": "sim", "prompt": "x", "max_tokens": 1, "pad": "x" * 30_000}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
    step = -(-len(body) // parts)
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    answer = await exchange(head + b"\r\n" + chunks + head + b"connection: close\r\n\r\n" + chunks)
    assert answer.count(b"200 OK") == 2


async def test_other_content_types_are_415(world: World) -> None:
    pair = await world.gateway()
    reply = await pair.client.post("/v1/completions", content=b"a=1", headers={"content-type": "text/plain"})
    assert reply.status_code == 415
    assert error_of(reply.json())["code"] == "unsupported_media_type"
    assert not pair.prefill.calls
