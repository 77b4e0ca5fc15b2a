"""What a request costs in Redis: counted on the wire, not in the code."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.bootstrap import build
from gateway.settings import Settings
from gateway.store.redis import RedisStore
from tests.integration.conftest import World
from tests.redis_server import counting_client
from tests.serving import serving

SETTLE = 0.3
QUIET = 3600.0
"""Seconds between heartbeats and looks at the load: only requests talk to Redis meanwhile."""


@pytest.mark.parametrize("tokens", [1, 200])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_costs_at_most_four_and_none_per_token(world: World, tokens: int, stream: bool) -> None:
    await world.engines()
    assert world.prefill is not None
    assert world.decode is not None
    client, trips = counting_client(world.redis_url)
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        prefill=(world.prefill[1],),
        decode=(world.decode[1],),
        owner_lease=QUIET,
        load_interval=QUIET,
    )
    store = RedisStore(client, prefix=world.prefix)
    async with serving(build(settings, store=store)) as url, httpx.AsyncClient(base_url=url) as http:
        body = {"model": "sim", "prompt": "x", "max_tokens": tokens, "stream": stream}
        await http.post("/v1/completions", json=body)  # connects, and loads the scripts
        await asyncio.sleep(SETTLE)
        trips.reset()
        reply = await http.post("/v1/completions", json=body)
        assert reply.text.count(" w") == tokens
        await asyncio.sleep(SETTLE)  # the last transition is written behind the answer
        assert 2 <= trips.count <= 4
