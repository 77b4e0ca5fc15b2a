"""Clients that leave at many moments: what prefill still holds then is counted, and is gone after its lease."""

from __future__ import annotations

import asyncio

import pytest

from engines.sim.engine import Latency, SimEngine
from tests.awaiting import until
from tests.integration.conftest import World

LEASE = 3.0
STEP = 0.003
"""Seconds between the moments at which clients leave."""
MOMENTS = 15
"""From when an engine has its call."""


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
async def test_kv_is_never_held_uncounted(world: World, stream: bool) -> None:
    await world.engines(lease=LEASE, latency=Latency(0.001, 0.005, until_fetched=0.02))
    pair = await world.gateway(kv_lease=LEASE)
    prefill, decode = pair.prefill, pair.decode

    async def leaves(engine: SimEngine, after: float, chat: bool) -> None:
        called, fields = len(engine.calls), {"stream": stream, "max_tokens": 3}
        client = asyncio.create_task(pair.chat(**fields) if chat else pair.complete("hello", **fields))

        async def has_it() -> bool:
            return len(engine.calls) > called

        await until(has_it, "the engine has the call", within=60, every=0.001)
        await asyncio.wait({client}, timeout=after)
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)

    async def over() -> bool:
        return await pair.metric("duet_requests_in_flight") == prefill.running == decode.running == 0

    for engine in (decode, prefill):  # what leaves prefill may be counted in vain, and hide what is not counted
        for moment in range(MOMENTS):
            await leaves(engine, moment * STEP, chat=bool(moment % 2))
            await until(over, "nobody works on it any more", within=60)
            counted = await pair.metric("duet_handoffs_held")  # first: it may be released in between
            prefill.kv.expire()
            assert len(prefill.kv.held) <= counted, f"left {moment * STEP:g} s after the call"

    async def empty() -> bool:
        prefill.kv.expire()
        return not prefill.kv.held and await pair.metric("duet_handoffs_held") == 0

    await until(empty, "no KV is held, and none counted", within=60)
