"""What a request costs in Redis: counted on the wire, not in the code."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest

from gateway.bootstrap import build
from gateway.lifecycle import State
from gateway.settings import Settings
from gateway.store.redis import RedisStore
from tests.awaiting import until
from tests.integration.conftest import World
from tests.redis_server import counting_client
from tests.serving import serving

PATIENCE = 60.0
"""Seconds; so long that nothing is asked for again, and no connection whether it still stands."""
SETTLE = 0.3
"""Seconds in which what follows the last transition, and should not, would show."""
QUIET = 3600.0
"""Seconds between heartbeats and looks at the load: only requests talk to Redis meanwhile."""


@pytest.mark.parametrize("tokens", [1, 200])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_costs_at_most_four_and_none_per_token(
    world: World, tokens: int, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.client.LISTEN_FOR", PATIENCE)
    monkeypatch.setattr("gateway.store.client.TIMEOUT", PATIENCE)
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
    onlooker = RedisStore.from_url(world.redis_url, prefix=world.prefix)

    async def written(reply: httpx.Response) -> None:
        """The last transition, which is written behind the answer."""
        id_ = reply.headers["x-duet-request-id"]

        async def look() -> bool:
            record = await onlooker.get(id_)
            return record is not None and record.state is State.FINISHED

        await until(look, f"request {id_} is finished")

    async with (
        serving(build(settings, store=store)) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
        aclosing(onlooker),
    ):
        body = {"model": "sim", "prompt": "x", "max_tokens": tokens, "stream": stream}
        await written(await http.post("/v1/completions", json=body))  # connects, and loads the scripts
        trips.reset()
        reply = await http.post("/v1/completions", json=body)
        assert reply.text.count(" w") == tokens
        await written(reply)
        await asyncio.sleep(SETTLE)
        assert 2 <= trips.count <= 4
