"""A client that leaves: both legs end, wherever the request was."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.integration.conftest import Pair, World, until

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
