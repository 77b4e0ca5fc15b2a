"""A client that leaves: both legs end, wherever the request was."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.awaiting import until
from tests.integration.conftest import Pair, World

POINTS = {
    "in prefill, unary": ("prefill", "hang", False),
    "in prefill, streamed": ("prefill", "hang", True),
    "in decode, unary": ("decode", "hang", False),
    "in decode before its headers": ("decode", "hang", True),
    "in a silent stream": ("decode", "hang_midway", True),
}


@pytest.mark.parametrize("point", POINTS)
async def test_both_legs_end_and_nothing_is_left(world: World, point: str) -> None:
    engine_name, mode, stream = POINTS[point]
    pair = await world.gateway()
    engine = getattr(pair, engine_name)
    engine.rule(mode, after=1)
    client = asyncio.create_task(pair.chat(stream=stream))

    async def reached() -> bool:
        return bool(engine.calls) and (mode != "hang_midway" or engine.running > 0)

    await until(reached, f"the request is {point}")
    request_id = engine.calls[0].headers["x-request-id"].partition("-")[0]
    client.cancel()

    async def left() -> bool:
        return engine.calls[0].end == "client left"

    await until(left, "the engine sees that its client left")
    record = await pair.record_in("cancelled", request_id)
    assert record["error"] is None

    async def empty() -> bool:
        loads = [e["load"] for e in (await pair.client.get("/admin/topology")).json()["engines"]]
        return loads == [0, 0] and await pair.metric("duet_requests_in_flight") == 0

    await until(empty, "no engine counts the request any more")
    assert (await pair.chat()).status_code == 200


@pytest.mark.parametrize("point", POINTS)
async def test_any_replica_ends_a_request_at_once(world: World, point: str) -> None:
    """Within 100 ms, also while decode is silent; the clock's bound here is wider than a busy machine needs."""
    engine_name, mode, stream = POINTS[point]
    one, two = await world.gateway(), await world.gateway()
    engine = getattr(one, engine_name)
    engine.rule(mode, after=1)
    client = asyncio.create_task(one.chat(stream=stream))

    async def reached() -> bool:
        return bool(engine.calls) and (mode != "hang_midway" or engine.running > 0)

    await until(reached, f"the request is {point}")
    request_id = engine.calls[0].headers["x-request-id"].partition("-")[0]
    await two.record_in("prefilling" if engine_name == "prefill" else "decoding", request_id)
    reply = await two.client.delete(f"/admin/requests/{request_id}")
    assert (reply.status_code, reply.json()["state"]) == (200, "cancelled")

    async def left() -> bool:
        return engine.calls[0].end == "client left"

    await until(left, "the engine sees that its client left")
    answer = await client
    if mode == "hang_midway":
        assert answer.text.endswith("data: [DONE]\n\n")
        assert '"code":"request_cancelled"' in answer.text
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (499, "request_cancelled")
    again = await two.client.delete(f"/admin/requests/chatcmpl-{request_id}-1-decode")
    assert again.json()["state"] == "cancelled", "what has ended stays as it is"
    assert (await two.client.delete("/admin/requests/never-was")).status_code == 404


async def test_kv_that_nobody_will_fetch_is_released(world: World) -> None:
    """A client that leaves while decode has not taken the request, and a decode that refuses it: prefill is told."""
    pair = await world.gateway()
    for mode in ("hang", "status"):
        pair.decode.rule(mode, status=400)
        client = asyncio.create_task(pair.chat(stream=True))
        await until(lambda: _true(len(pair.prefill.kv.held) == 1), "prefill holds KV")
        if mode == "hang":
            await until(lambda: _true(pair.decode.calls), "decode has the call")
            client.cancel()
        await asyncio.gather(client, return_exceptions=True)
        await until(lambda: _true(not pair.prefill.kv.held), "prefill holds nothing")
    assert pair.prefill.kv.released == 2
    assert await pair.metric("duet_handoffs_abandoned_total") == 2

    async def counted() -> bool:
        return await pair.metric("duet_handoffs_released_total") == 2

    await until(counted, "both are counted as released, once their calls have returned")


async def _true(value: Any) -> bool:
    return bool(value)


async def test_a_client_that_leaves_before_its_body_is_whole_reaches_no_engine(pair: Pair) -> None:
    url = httpx.URL(pair.url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await pair.chat()).status_code == 200
    assert len(pair.prefill.calls) == 1


async def test_a_slow_client_holds_the_engine_back_and_loses_nothing(pair: Pair) -> None:
    """Nothing buffers without end: what a client does not read is not read from the engine either."""
    body: dict[str, Any] = {"model": "sim", "prompt": "x", "max_tokens": 3000, "stream": True}
    async with pair.client.stream("POST", "/v1/completions", json=body) as reply:
        lines = 0
        async for line in reply.aiter_lines():
            lines += line.startswith("data: {")
            if lines % 500 == 0:
                await asyncio.sleep(0.02)
    assert lines == 3000
