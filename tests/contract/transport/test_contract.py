"""One suite that every engine client passes."""

from __future__ import annotations

import asyncio
import json
import time
from math import inf

import pytest

from common.errors import EngineBroken, EngineTimeout, EngineUnreachable
from gateway.transport.port import Deadlines, ReplyStream, Sent
from tests.contract.transport.conftest import ENOUGH, SOON, Bench, first_of, happens
from tests.fakes.script import CUT, Script, json_reply, sse_reply

PATH = "/v1/chat/completions"
AWHILE = 1.0
"""Seconds: a bound on waits that take no time, and which a test's own pauses are longer than together."""
LONG = 1.0
"""Seconds in which everything stands still, and which the engine has for its answer."""
PATIENT = Deadlines(connect=ENOUGH, headers=ENOUGH, idle=ENOUGH)


async def post(bench: Bench, body: bytes = b"{}", *, deadlines: Deadlines = PATIENT, **headers: str) -> ReplyStream:
    return await bench.client.post(bench.engine, PATH, body, headers=headers, deadlines=deadlines)


async def test_what_is_sent_arrives_as_it_is(bench: Bench) -> None:
    bench.play(json_reply({}))
    body = b'{"n": 1.50, "a":"\\u00e9 \xc3\xa9"}'
    reply = await post(bench, body, **{"x-request-id": "r-1-decode"})
    await reply.read()
    (seen,) = bench.seen()
    assert (seen.method, seen.path, seen.body) == ("POST", PATH, body)
    assert seen.headers["x-request-id"] == "r-1-decode"
    assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [200, 400, 404, 429, 500, 503])
async def test_a_reply_is_a_reply_whatever_its_status(bench: Bench, status: int) -> None:
    bench.play(Script([b'{"a":', b"1}"], status, {"content-type": "application/json", "retry-after": "7"}))
    reply = await post(bench)
    assert reply.status == status
    assert reply.headers["retry-after"] == "7"
    assert json.loads(await reply.read()) == {"a": 1}
    reply.close()


async def test_each_part_can_be_read_before_the_next_is_sent(bench: Bench) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    bench.play(sse_reply({"n": 0}, gates[0], {"n": 1}, gates[1], {"n": 2}, gates[2]))
    reply = await post(bench)
    chunks = reply.chunks()
    for n, gate in enumerate(gates):
        async with asyncio.timeout(ENOUGH):
            assert await anext(chunks) == b'data: {"n": %d}\n\n' % n
        gate.set()
    assert b"".join([chunk async for chunk in chunks]) == b"data: [DONE]\n\n"


async def test_the_reply_is_there_with_its_headers_not_with_its_body(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.play(Script([gate, b"late"]))
    async with asyncio.timeout(ENOUGH):
        reply = await post(bench)
    gate.set()
    assert await reply.read() == b"late"


async def test_what_was_not_read_as_chunks_can_be_read_whole(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.play(Script([b"one ", gate, b"two ", b"three"]))
    reply = await post(bench)
    first, rest = await first_of(reply)
    await rest.aclose()
    gate.set()
    assert (first, await reply.read()) == (b"one ", b"two three")


async def test_an_empty_body_has_no_chunks(bench: Bench) -> None:
    bench.play(Script([], 200, {"content-length": "0"}))
    reply = await post(bench)
    assert [chunk async for chunk in reply.chunks()] == []


@pytest.mark.parametrize("headers", [{}, {"content-length": "100"}], ids=["streamed", "with a length"])
async def test_a_body_that_ends_early_is_broken(bench: Bench, headers: dict[str, str]) -> None:
    gate = asyncio.Event()
    bench.play(Script([b"good", gate, CUT], 200, headers))
    reply = await post(bench)
    first, rest = await first_of(reply)
    assert first == b"good"
    gate.set()
    with pytest.raises(EngineBroken) as caught:
        await anext(rest)
    assert caught.value.engine == bench.engine.id
    assert bench.engine.id in caught.value.message
    reply.close()


async def test_a_connection_that_breaks_before_the_headers_is_unreachable(bench: Bench) -> None:
    bench.play(Script(before=[CUT]))
    with pytest.raises(EngineUnreachable) as caught:
        await post(bench)
    assert caught.value.engine == bench.engine.id
    assert caught.value.worked, "the engine may have done it"
    assert len(bench.seen()) == 1, "work is never sent twice"


async def test_an_engine_that_is_not_there_is_unreachable(bench: Bench) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        await bench.client.post(bench.closed, PATH, b"{}", headers={}, deadlines=PATIENT)
    assert caught.value.engine == bench.closed.id
    assert not caught.value.worked
    with pytest.raises(EngineUnreachable):
        await bench.client.get(bench.closed, "/health", timeout=ENOUGH)


async def test_headers_that_do_not_come_in_time(bench: Bench) -> None:
    bench.play(Script(before=[asyncio.Event()]))
    with pytest.raises(EngineTimeout, match="did not answer") as caught:
        await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=SOON, idle=ENOUGH))
    assert caught.value.engine == bench.engine.id
    await arrived(bench)
    await happens(bench.seen()[0].left)


async def test_a_call_may_have_no_bound(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.play(Script([gate, b"x"], before=[gate]))
    posted = asyncio.ensure_future(post(bench, deadlines=Deadlines(connect=ENOUGH, headers=inf, idle=inf)))
    done, _ = await asyncio.wait({posted}, timeout=SOON)
    assert not done
    gate.set()
    reply = await posted
    assert await reply.read() == b"x"


async def test_a_stream_that_falls_silent(bench: Bench) -> None:
    bench.play(Script([b"one", asyncio.Event()]))
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=SOON, first=2 * ENOUGH))
    first, rest = await first_of(reply)
    assert first == b"one"
    async with asyncio.timeout(ENOUGH):
        with pytest.raises(EngineTimeout, match=f"sent nothing for {SOON:g} s") as caught:
            await anext(rest)
    assert caught.value.engine == bench.engine.id
    reply.close()
    await happens(bench.seen()[0].left)


async def test_the_idle_deadline_is_for_each_wait_not_for_all(bench: Bench) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    bench.play(Script([part for gate in gates for part in (gate, b"x")]))
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=AWHILE))
    chunks = reply.chunks()
    for gate in gates:  # 1.2 * AWHILE from the first to the last
        await asyncio.sleep(0.4 * AWHILE)
        gate.set()
        assert await anext(chunks) == b"x"
    assert [chunk async for chunk in chunks] == []


async def test_before_the_first_content_idle_does_not_count(bench: Bench) -> None:
    """A long prompt in front of the first token is no idle engine, though its headers are there."""
    gate = asyncio.Event()
    bench.play(Script([gate, b"first", asyncio.Event()]))
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=SOON, first=2 * ENOUGH))
    chunks = reply.chunks(every=False)
    waiting = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(4 * SOON)
    gate.set()
    assert await waiting == b"first"
    reply.said()
    async with asyncio.timeout(ENOUGH):
        with pytest.raises(EngineTimeout, match=f"sent nothing for {SOON:g} s"):
            await anext(chunks)
    reply.close()


@pytest.mark.parametrize("headers", [0, 1], ids=["early headers", "late headers"])
async def test_the_first_content_is_awaited_from_the_request_on(bench: Bench, headers: int) -> None:
    gate = asyncio.Event()
    bench.play(Script([asyncio.Event()], before=[gate][:headers]))
    asyncio.get_running_loop().call_later(3 * SOON, gate.set)
    began = asyncio.get_running_loop().time()
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=ENOUGH, first=4 * SOON))
    with pytest.raises(EngineTimeout, match=f"no first token within {4 * SOON:g} s"):
        await anext(reply.chunks(every=False))
    assert asyncio.get_running_loop().time() - began < ENOUGH
    reply.close()


@pytest.mark.parametrize("first", [None, AWHILE])
async def test_what_has_no_content_moves_no_deadline_on(bench: Bench, first: float | None) -> None:
    gates = [asyncio.Event() for _ in range(1000)]
    bench.play(Script([part for gate in gates for part in (gate, b": ping\n\n")]))
    for n, gate in enumerate(gates):
        asyncio.get_running_loop().call_later(n * SOON, gate.set)
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=AWHILE, first=first))
    seen: list[bytes] = []

    async def read() -> None:
        async for chunk in reply.chunks(every=False):
            seen.append(chunk)

    with pytest.raises(EngineTimeout):
        await read()
    assert 0 < len(seen) < len(gates)
    reply.close()


async def test_a_slow_reader_is_no_idle_engine(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.play(Script([b"one", gate, b"two"]))
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=AWHILE, first=ENOUGH))
    chunks = reply.chunks(every=False)
    assert await anext(chunks) == b"one"
    reply.said()
    await asyncio.sleep(1.2 * AWHILE)  # the reader's own time
    asyncio.get_running_loop().call_soon(gate.set)
    assert await anext(chunks) == b"two"


async def test_a_whole_reply_has_a_deadline_however_it_drips(bench: Bench) -> None:
    gates = [asyncio.Event() for _ in range(1000)]
    bench.play(Script([part for gate in gates for part in (gate, b"x")]))
    for n, gate in enumerate(gates):
        asyncio.get_running_loop().call_later(n * SOON, gate.set)
    reply = await post(bench, deadlines=Deadlines(connect=ENOUGH, headers=ENOUGH, idle=ENOUGH, whole=6 * SOON))
    with pytest.raises(EngineTimeout, match="no whole reply"):
        await reply.read()
    reply.close()


async def test_close_ends_a_call_and_the_engine_sees_it(bench: Bench) -> None:
    bench.play(Script([b"one", asyncio.Event(), b"two"]))
    reply = await post(bench)
    await first_of(reply)
    reply.close()
    reply.close()
    (seen,) = bench.seen()
    await happens(seen.left)
    assert not seen.answered.is_set()


async def test_close_before_anything_was_read(bench: Bench) -> None:
    bench.play(Script([asyncio.Event()]))
    reply = await post(bench)
    reply.close()
    await happens(bench.seen()[0].left)


async def test_close_while_another_reads_ends_the_reading(bench: Bench) -> None:
    """Whoever closes both legs is not always the one who reads."""
    bench.play(Script([b"one", asyncio.Event()]))
    reply = await post(bench)
    _, rest = await first_of(reply)
    reading = asyncio.ensure_future(anext(rest))
    await asyncio.sleep(0)
    reply.close()
    async with asyncio.timeout(ENOUGH):
        with pytest.raises(EngineBroken):
            await reading


async def test_close_after_the_end_is_nothing(bench: Bench) -> None:
    bench.play(json_reply({}))
    for _ in range(2):
        reply = await post(bench)
        await reply.read()
        reply.close()
    first, second = bench.seen()
    await happens(second.answered)
    assert not first.left.is_set()
    assert not second.left.is_set()


async def test_cancelling_a_post_ends_the_call(bench: Bench) -> None:
    bench.play(Script(before=[asyncio.Event()]))
    task = asyncio.ensure_future(post(bench))
    await arrived(bench)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await happens(bench.seen()[0].left)


async def test_a_call_that_is_cut_says_whether_it_may_have_arrived(bench: Bench) -> None:
    bench.play(Script(before=[asyncio.Event()]))
    sent = Sent()
    call = bench.client.post(bench.engine, PATH, b"{}", headers={}, deadlines=PATIENT, sent=sent)
    task = asyncio.ensure_future(call)
    assert not sent.maybe
    await arrived(bench)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sent.maybe


async def test_cancelling_a_reader_leaves_the_close_to_the_caller(bench: Bench) -> None:
    bench.play(Script([b"one", asyncio.Event()]))
    reply = await post(bench)
    _, rest = await first_of(reply)
    task = asyncio.ensure_future(anext(rest))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reply.close()
    await happens(bench.seen()[0].left)


async def test_an_outer_deadline_is_not_mistaken_for_the_engines(bench: Bench) -> None:
    bench.play(Script(before=[asyncio.Event()]))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON):
            await post(bench)


async def test_calls_do_not_wait_for_each_other(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.play(Script([gate, b"x"]))
    replies = [await post(bench) for _ in range(20)]
    gate.set()
    assert [await reply.read() for reply in replies] == [b"x"] * 20


async def test_get_gives_the_whole_reply(bench: Bench) -> None:
    bench.play(json_reply({"data": []}, 503))
    reply = await bench.client.get(bench.engine, "/v1/models", timeout=ENOUGH)
    assert (reply.status, json.loads(reply.body)) == (503, {"data": []})
    assert reply.headers["content-type"] == "application/json"
    (seen,) = bench.seen()
    assert (seen.method, seen.path, seen.body) == ("GET", "/v1/models", b"")


@pytest.mark.parametrize("where", ["headers", "body"])
async def test_get_has_one_deadline_for_all(bench: Bench, where: str) -> None:
    silence = asyncio.Event()
    bench.play(Script(before=[silence]) if where == "headers" else Script([b"x", silence]))
    with pytest.raises(EngineTimeout) as caught:
        await bench.client.get(bench.engine, "/health", timeout=SOON)
    assert caught.value.engine == bench.engine.id


async def test_time_in_which_we_stood_still_is_not_the_engines(bench: Bench) -> None:
    answer = asyncio.Event()
    bench.play(Script([b"{}"], before=[answer]))
    got = asyncio.ensure_future(bench.client.get(bench.engine, "/health", timeout=LONG))
    await arrived(bench)
    time.sleep(LONG)  # noqa: ASYNC251 - the whole loop is to stand still
    answer.set()
    assert (await got).status == 200


async def test_a_get_that_breaks_off_is_unreachable(bench: Bench) -> None:
    bench.play(Script([b"x", CUT]))
    with pytest.raises(EngineUnreachable):
        await bench.client.get(bench.engine, "/health", timeout=ENOUGH)


async def arrived(bench: Bench) -> None:
    async with asyncio.timeout(ENOUGH):
        while not bench.seen():  # noqa: ASYNC110 - a socket is between the call and the one who sees it
            await asyncio.sleep(0.001)
