"""What is HTTP's own business: connections, headers, bodies, and what a socket can do to them."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
import uvloop

from common.engine import Engine, Role
from common.errors import EngineBroken, EngineTimeout, EngineUnreachable
from gateway.transport import http, pool
from gateway.transport.http import HttpEngineClient
from gateway.transport.port import Deadlines, Sent
from tests.contract.transport.conftest import ENOUGH, SOON, first_of, happens
from tests.fakes.engine_server import EngineServer, engine_server
from tests.fakes.script import CUT, Script, json_reply

PATIENT = Deadlines(connect=ENOUGH, headers=ENOUGH, idle=ENOUGH)
PATH = "/v1/completions"


@pytest.fixture
async def server() -> AsyncIterator[EngineServer]:
    async with engine_server() as made:
        made.play = lambda seen: json_reply({})
        yield made


@pytest.fixture
async def client() -> AsyncIterator[HttpEngineClient]:
    made = HttpEngineClient()
    await made.start()
    yield made
    await made.aclose()


async def ask(client: HttpEngineClient, url: str, body: bytes = b"{}", deadlines: Deadlines = PATIENT) -> bytes:
    reply = await client.post(Engine.at(url, Role.PREFILL), PATH, body, headers={}, deadlines=deadlines)
    try:
        return await reply.read()
    finally:
        reply.close()


async def test_engines_are_sent_no_header_that_nobody_asked_for(client: HttpEngineClient, server: EngineServer) -> None:
    await ask(client, server.url)
    await client.get(Engine.at(server.url, Role.PREFILL), "/health", timeout=ENOUGH)
    posted, got = server.calls
    assert set(posted.headers) == {"host", "content-type", "content-length"}
    assert set(got.headers) == {"host"}


async def test_a_key_goes_along(server: EngineServer) -> None:
    client = HttpEngineClient(api_key="s3cret")
    await client.start()
    await ask(client, server.url)
    await client.get(Engine.at(server.url, Role.PREFILL), "/v1/models", timeout=ENOUGH)
    await client.aclose()
    assert [seen.headers["authorization"] for seen in server.calls] == ["Bearer s3cret"] * 2


async def test_a_long_body_goes_out_whole(client: HttpEngineClient, server: EngineServer) -> None:
    body = b'{"audio": "' + b"A" * (3 * http.BIG_BODY) + b'"}'
    await ask(client, server.url, body)
    assert server.calls[0].body == body


async def test_an_early_answer_to_a_long_body_is_an_answer(client: HttpEngineClient, server: EngineServer) -> None:
    """An engine may refuse a body before it has read it."""
    server.play = lambda seen: json_reply({"error": "no"}, 413)
    reply = await client.post(
        Engine.at(server.url, Role.PREFILL), PATH, b"x" * (2 * http.BIG_BODY), headers={}, deadlines=PATIENT
    )
    assert reply.status == 413
    reply.close()


async def test_one_connection_serves_one_call_after_another(client: HttpEngineClient, server: EngineServer) -> None:
    for _ in range(5):
        await ask(client, server.url)
    assert (len(server.calls), server.connections) == (5, 1)


async def test_a_reply_that_was_left_is_not_the_next_ones_connection(
    client: HttpEngineClient, server: EngineServer
) -> None:
    server.play = lambda seen: Script([b"x", asyncio.Event()])
    reply = await client.post(Engine.at(server.url, Role.DECODE), PATH, b"{}", headers={}, deadlines=PATIENT)
    reply.close()
    server.play = lambda seen: json_reply({})
    assert await ask(client, server.url) == b"{}"
    assert server.connections == 2


async def test_connections_to_an_engine_can_be_bounded(server: EngineServer) -> None:
    client = HttpEngineClient(per_engine=1)
    await client.start()
    server.play = lambda seen: Script([asyncio.Event()])
    engine = Engine.at(server.url, Role.DECODE)
    held = await client.post(engine, PATH, b"{}", headers={}, deadlines=PATIENT)
    with pytest.raises(EngineTimeout, match="did not accept a connection"):
        await ask(client, server.url, deadlines=Deadlines(connect=SOON, headers=ENOUGH, idle=ENOUGH))
    held.close()
    server.play = lambda seen: json_reply({})
    assert await ask(client, server.url) == b"{}"
    await client.aclose()


async def test_a_call_that_is_cut_before_it_has_a_connection_was_not_sent(server: EngineServer) -> None:
    client, sent = HttpEngineClient(per_engine=1), Sent()
    await client.start()
    server.play = lambda seen: Script([asyncio.Event()])
    engine = Engine.at(server.url, Role.DECODE)
    held = await client.post(engine, PATH, b"{}", headers={}, deadlines=PATIENT)
    call = asyncio.ensure_future(client.post(engine, PATH, b"{}", headers={}, deadlines=PATIENT, sent=sent))
    await asyncio.sleep(SOON)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert not sent.maybe
    held.close()
    await client.aclose()
    assert len(server.calls) == 1


async def test_time_to_connect_is_not_taken_from_the_headers(server: EngineServer) -> None:
    """Nor added to it: each deadline has its own beginning."""
    client = HttpEngineClient(per_engine=1)
    await client.start()
    server.play = lambda seen: Script([b"x", asyncio.Event()])
    held = await client.post(Engine.at(server.url, Role.PREFILL), PATH, b"{}", headers={}, deadlines=PATIENT)
    server.play = lambda seen: Script(before=[asyncio.Event()])
    began = asyncio.get_running_loop().time()
    call = asyncio.create_task(ask(client, server.url, deadlines=Deadlines(ENOUGH, 2 * SOON, ENOUGH)))
    await asyncio.sleep(6 * SOON)
    assert not call.done(), "it has no connection yet"
    held.close()
    with pytest.raises(EngineTimeout, match="did not answer"):
        await call
    assert asyncio.get_running_loop().time() - began < ENOUGH, "the time to connect is not added"
    await client.aclose()


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"3\r\nfour\r\n", b"-1\r\n", b"\r\n", b"ffffffffffffffffffff\r\n"], ids=repr
)
async def test_a_broken_chunk_is_noticed_though_the_connection_stays(client: HttpEngineClient, rest: bytes) -> None:
    """At once, not when the deadline is over."""
    over = threading.Event()

    def corrupt(c: socket.socket) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n" + rest)
        over.wait(10 * ENOUGH)

    with threaded(corrupt) as url:
        try:
            async with asyncio.timeout(ENOUGH):
                with pytest.raises(EngineBroken):
                    await ask(client, url, deadlines=Deadlines(ENOUGH, ENOUGH, 10 * ENOUGH))
        finally:
            over.set()


async def test_environments_proxies_are_not_used(
    client: HttpEngineClient, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await ask(client, server.url) == b"{}"


async def test_a_body_is_passed_on_as_it_is_encoded(client: HttpEngineClient, server: EngineServer) -> None:
    packed = gzip.compress(b"{}")
    headers = {"content-encoding": "gzip", "content-length": str(len(packed))}
    server.play = lambda seen: Script([packed], 200, headers)
    assert await ask(client, server.url) == packed


async def test_redirects_are_not_followed(client: HttpEngineClient, server: EngineServer) -> None:
    headers = {"location": "http://127.0.0.1:9/", "content-length": "0"}
    server.play = lambda seen: Script([], 307, headers)
    reply = await client.post(Engine.at(server.url, Role.DECODE), PATH, b"{}", headers={}, deadlines=PATIENT)
    assert reply.status == 307
    reply.close()
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "raw", [b"+PONG\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], ids=repr
)
async def test_what_is_no_http_is_broken(client: HttpEngineClient, server: EngineServer, raw: bytes) -> None:
    server.raw = raw
    with pytest.raises(EngineBroken, match="sent no HTTP reply"):
        await ask(client, server.url)


async def test_a_broken_chunk_is_broken(client: HttpEngineClient, server: EngineServer) -> None:
    server.raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n"
    with pytest.raises(EngineBroken):
        await ask(client, server.url)


async def test_a_reset_in_the_middle_is_broken(client: HttpEngineClient) -> None:
    read = threading.Event()

    def half(c: socket.socket) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        read.wait(ENOUGH)  # a reset drops what was not read yet
        reset(c)

    with threaded(half) as url:
        reply = await client.post(Engine.at(url, Role.PREFILL), PATH, b"{}", headers={}, deadlines=PATIENT)
        first, rest = await first_of(reply)
        assert first == b"half"
        read.set()
        with pytest.raises(EngineBroken):
            await anext(rest)
        reply.close()


async def test_a_reset_before_the_headers_is_unreachable(client: HttpEngineClient) -> None:
    with threaded(reset) as url, pytest.raises(EngineUnreachable):
        await ask(client, url)


async def test_work_that_may_have_begun_is_not_sent_again(client: HttpEngineClient, server: EngineServer) -> None:
    """On a used connection too: the engine took the request, so nobody knows how far it came."""
    await ask(client, server.url)
    server.play = lambda seen: Script(before=[CUT])
    with pytest.raises(EngineUnreachable):
        await ask(client, server.url)
    assert len(server.calls) == 2


async def test_a_dead_connection_in_the_pool_is_no_engine_that_may_have_worked(client: HttpEngineClient) -> None:
    """It was looked at and not used; the new one was refused. So no engine has seen the request."""

    def answer_and_close(c: socket.socket) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        over.wait(ENOUGH)

    over, closed = threading.Event(), threading.Event()
    with threaded(answer_and_close, closed) as url:
        assert await ask(client, url) == b"ok"
        over.set()
        stands_still_until(closed)
    with pytest.raises(EngineUnreachable) as caught:
        await ask(client, url)
    assert not caught.value.worked


async def test_a_whole_reply_is_bounded(
    client: HttpEngineClient, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_WHOLE", 2**20)
    server.play = lambda seen: Script([b"x" * 2**18] * 10**6)
    with pytest.raises(EngineBroken, match="more than 1048576 bytes"):
        await ask(client, server.url)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_the_engine_closed_costs_no_request(run: Callable[..., None]) -> None:
    """The end of the idle connection has arrived, but the event loop has not seen it when the next call is made."""
    answered: list[int] = []
    over, closed = threading.Event(), threading.Event()

    def answer_and_close(c: socket.socket) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        answered.append(1)
        over.wait(ENOUGH)

    async def main() -> None:
        client = HttpEngineClient()
        await client.start()
        with threaded(answer_and_close, closed) as url:
            for _ in range(3):
                over.clear()
                closed.clear()
                assert await ask(client, url) == b"ok"
                over.set()
                stands_still_until(closed)
        await client.aclose()

    run(main())
    assert len(answered) == 3


async def test_a_connection_is_not_used_after_standing_idle(
    client: HttpEngineClient, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool.KEEP_ALIVE < 5, "vLLM closes an idle connection after 5 s"
    monkeypatch.setattr(pool, "KEEP_ALIVE", SOON)
    await client.aclose()
    await client.start()
    await ask(client, server.url)
    await asyncio.sleep(3 * SOON)
    await ask(client, server.url)
    assert server.connections == 2


async def test_small_writes_are_not_held_back(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[int] = []

    class Looking(pool.EngineConnector):
        async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
            connection = await super().connect(*args, **kwargs)
            sock = connection.transport.get_extra_info("socket")
            options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            return connection

    monkeypatch.setattr(http, "EngineConnector", Looking)
    client = HttpEngineClient()
    await client.start()
    await ask(client, server.url)
    await client.aclose()
    assert options == [1]


async def test_a_slow_reader_holds_the_engine_back(client: HttpEngineClient, server: EngineServer) -> None:
    """Nothing is read ahead without bound, and nothing is lost."""
    size = 128 * 2**18
    script = Script([b"x" * 2**18] * 128, 200, {"content-length": str(size)})
    server.play = lambda seen: script
    reply = await client.post(Engine.at(server.url, Role.DECODE), PATH, b"{}", headers={}, deadlines=PATIENT)
    await asyncio.sleep(2 * SOON)
    assert not server.calls[0].answered.is_set()
    assert len(await reply.read()) == size
    await happens(server.calls[0].answered)


async def test_closing_the_client_ends_what_still_streams(server: EngineServer) -> None:
    client = HttpEngineClient()
    await client.start()
    server.play = lambda seen: Script([b"x", asyncio.Event()])
    reply = await client.post(Engine.at(server.url, Role.DECODE), PATH, b"{}", headers={}, deadlines=PATIENT)
    chunks = reply.chunks()
    assert await anext(chunks) == b"x"
    waiting = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    await client.aclose()
    with pytest.raises(EngineBroken):
        await waiting
    await happens(server.calls[0].left)


async def test_no_task_outlives_its_call(client: HttpEngineClient, server: EngineServer) -> None:
    server.play = lambda seen: Script(before=[asyncio.Event()])
    before = asyncio.all_tasks()
    calls = [asyncio.ensure_future(ask(client, server.url, b"x" * (2 * http.BIG_BODY))) for _ in range(3)]
    await asyncio.sleep(SOON)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for seen in server.calls:
        await happens(seen.left)

    def outlived() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() - before if "EngineServer" not in repr(task)}

    async with asyncio.timeout(ENOUGH):
        while outlived():  # noqa: ASYNC110 - a task that was cancelled ends some steps later
            await asyncio.sleep(SOON)


async def test_before_start_and_after_the_end_there_is_no_client(server: EngineServer) -> None:
    client = HttpEngineClient()
    with pytest.raises(RuntimeError, match="not started"):
        await ask(client, server.url)
    await client.aclose()
    assert not server.calls


def stands_still_until(closed: threading.Event) -> None:
    """The event loop does, so that it does not see what has arrived."""
    assert closed.wait(ENOUGH)
    time.sleep(SOON)  # from one end of the connection to the other


def reset(c: socket.socket) -> None:
    """Ends a connection with RST instead of FIN."""
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    c.close()


@contextmanager
def threaded(answer: Callable[[socket.socket], object], closed: threading.Event | None = None) -> Iterator[str]:
    """An engine in threads of its own, so that it lives while the event loop stands still. It reads one request on
    each connection, lets `answer` do what it does with it, closes it, and sets `closed`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def one(c: socket.socket) -> None:
        with c:
            if c.recv(65536):
                answer(c)
        if closed is not None:
            closed.set()

    def accept() -> None:
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(c,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
