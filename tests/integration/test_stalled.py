"""Clients that ask and take nothing of their answers: cut off after a while, whatever the answer is."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from httpx import URL

from gateway.api.protocol import bounded
from gateway.bootstrap import build
from gateway.settings import Settings
from tests.awaiting import until
from tests.fakes.engine_server import engine_server
from tests.fakes.script import Script, Seen, json_reply
from tests.integration.conftest import MODEL, World
from tests.integration.test_http import protocol
from tests.serving import serving

WITHIN = 0.5
"""Seconds that a client may take nothing."""
BIG = 32 * 2**20
"""Bytes; more than kernels keep for a connection whose client has a small buffer."""
LESS = 8 * 2**20
"""Bytes; as before, of a kernel as it usually is. Soon taken, where a client takes all of it."""
RUNS = 20
"""How often something is measured anew at most: on a busy machine many runs in a row may be void."""
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def deaf(url: str, request: bytes) -> socket.socket:
    """A connection on which a request was sent and from which nothing is read."""
    at = URL(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (at.host, at.port))
    await asyncio.get_running_loop().sock_sendall(client, request)
    return client


async def is_cut(client: socket.socket) -> bool:
    """Whether the other side has reset it: it keeps nothing for it any more. Reads nothing."""
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


@dataclass
class Answering:
    """An application that answers with `parts`; `stalled` counts, `over` is set when it has been heard out."""

    parts: list[bytes]
    stalled: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.over.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    def stall(self) -> None:
        self.stalled += 1


@asynccontextmanager
async def answering(*parts: bytes) -> AsyncIterator[tuple[str, Answering]]:
    app = Answering(list(parts))
    http = bounded(max_header_bytes=4096, headers_within=60, written_within=WITHIN, on_stalled=app.stall)
    async with serving(app, http) as url:
        yield url, app


async def undisturbed(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it until the event loop did not stand still meanwhile: client and server share it, so a client that should
    take something then takes nothing either."""
    loop = asyncio.get_running_loop()
    for _ in range(RUNS):
        task, largest, last = asyncio.create_task(run()), 0.0, loop.time()
        while not task.done():
            await asyncio.wait({task}, timeout=WITHIN / 50)
            now = loop.time()
            largest, last = max(largest, now - last), now
        if largest <= WITHIN / 2:
            return await task
        task.exception()  # void, whatever came of it
    pytest.fail(
        f"nothing could be measured: the event loop stood still for over {WITHIN / 2:g} s in each of {RUNS} runs"
    )


@pytest.mark.parametrize("parts", [[b"x" * BIG], [b"x" * 2**16] * (BIG // 2**16)], ids=["in one", "in parts"])
async def test_a_client_that_takes_nothing_is_cut_off(parts: list[bytes]) -> None:
    """Also where all was said long ago, and only the connection still has it."""
    async with answering(*parts) as (url, app):
        client = await deaf(url, REQUEST)

        async def cut() -> bool:
            return app.stalled == 1 and await is_cut(client)

        await until(cut, "the connection is cut")
        client.close()
        async with asyncio.timeout(60):
            await app.gone.wait()


async def test_a_slow_client_is_left_alone() -> None:
    """It takes a little in each span, for longer than one span in all."""

    async def run() -> None:
        async with answering(*[b"x" * 2**16] * (LESS // 2**16)) as (url, app):
            loop = asyncio.get_running_loop()
            with await deaf(url, REQUEST) as client:
                began = loop.time()
                while not app.over.is_set():
                    await loop.sock_recv(client, 2**16)
                    if loop.time() - began < 3 * WITHIN:
                        await asyncio.sleep(WITHIN / 20)
                assert app.stalled == 0

    await undisturbed(run)


async def test_a_client_that_reads_late_but_in_time_has_its_answer() -> None:
    async def run() -> None:
        async with answering(b"x" * LESS) as (url, app):
            with await deaf(url, REQUEST) as client:
                loop, taken = asyncio.get_running_loop(), 0
                await asyncio.sleep(WITHIN / 4)
                while taken < LESS:
                    taken += len(await loop.sock_recv(client, 2**20))
                await asyncio.sleep(2 * WITHIN)
                assert app.stalled == 0

    await undisturbed(run)


def endless(seen: Seen) -> Script:
    """A decode engine that goes on for ever."""
    if seen.method == "GET":
        return json_reply({"data": [{"id": MODEL, "max_model_len": 4096}]})
    said = {"id": "d", "choices": [{"index": 0, "text": "x" * 2**16, "finish_reason": None}]}
    head = {"content-type": "text/event-stream"}
    return Script([f"data: {json.dumps(said)}\n\n".encode()] * 4096, 200, head)


async def test_a_stream_that_nobody_takes_is_cancelled_and_leaves_nothing(world: World) -> None:
    await world.engines()
    assert world.prefill is not None
    async with engine_server() as decode:
        decode.play = endless
        settings = Settings(
            _env_file=None,  # type: ignore[call-arg]
            prefill=(world.prefill[1],),
            decode=(decode.url,),
            redis_url=world.redis_url,
            redis_prefix=world.prefix,
        )
        gateway = build(settings)
        async with serving(gateway, protocol(gateway, headers_within=60, written_within=WITHIN)) as url:
            body = json.dumps({"model": MODEL, "prompt": "hello", "stream": True, "max_tokens": 9}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            client = await deaf(url, head.encode() + body)

            async def left() -> bool:
                return any(seen.left.is_set() for seen in decode.calls if seen.method == "POST")

            await until(left, "decode sees that nobody takes its answer")
            metrics = gateway.metrics.registry.get_sample_value

            async def over() -> bool:
                cancelled = {"endpoint": "/v1/completions", "outcome": "cancelled"}
                return metrics("duet_requests_total", cancelled) == 1

            await until(over, "the request is cancelled")
            assert metrics("duet_clients_stalled_total") == 1
            assert metrics("duet_requests_in_flight") == 0
            assert metrics("duet_handoffs_held") == 0, "decode had fetched it"
            client.close()
