"""Several gateways, one Redis: any of them knows every request, and none leaves anything behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from common.ports import free_ports
from common.process import Child
from tests.awaiting import until
from tests.integration.balanced import gateway, ready
from tests.integration.conftest import World
from tests.redis_server import keys_under


async def test_another_replica_shows_a_request_while_it_streams_and_after(world: World) -> None:
    one = await world.gateway()
    two = await world.gateway()
    one.decode.latency.between_tokens = 0.02
    body = {"model": "sim", "prompt": "x", "max_tokens": 60, "stream": True}
    async with one.client.stream("POST", "/v1/completions", json=body) as reply:
        request_id = reply.headers["x-duet-request-id"]
        running = await two.record_in("decoding", request_id)
        assert running["replica"] != (await two.client.get("/admin/topology")).json()["replica"]
        assert running["handoff"]["params"]["remote_engine_id"] == one.prefill.id
        async for _ in reply.aiter_lines():
            pass
    ended = await two.record_in("finished", request_id)
    assert ended["phases"]["decoding"] > 0.5


async def test_load_is_shared(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    one.decode.rule("hang")
    client = asyncio.create_task(one.chat())

    async def seen() -> bool:
        engines = (await two.client.get("/admin/topology")).json()["engines"]
        return {e["role"]: e["load"] for e in engines} == {"prefill": 0, "decode": 1}

    await until(seen, "the other replica counts the request on its engine")
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_a_killed_gateways_request_is_closed_by_another_and_every_key_ends(world: World, tmp_path: Path) -> None:
    """SIGKILL between prefill and decode. The survivor has nothing but Redis to know of it."""
    lease = 5.0  # seconds; longer than one stands still that lives
    survivor = await world.gateway(owner_lease=lease)
    survivor.decode.rule("hang")
    (port,) = free_ports(1)
    with gateway(world, "victim", port, tmp_path, lease=lease) as child:
        url = f"http://127.0.0.1:{port}"
        await ready(child, url, within=100)
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            body = {"model": "sim", "prompt": "x", "max_tokens": 4}
            doomed = asyncio.create_task(client.post("/v1/completions", json=body))

            async def prefilled() -> bool:
                return bool(survivor.decode.calls)

            await until(prefilled, "prefill is done, and decode has not answered")
            request_id = survivor.decode.calls[0].headers["x-request-id"].partition("-")[0]
            os.kill(gateway_pid(child), signal.SIGKILL)
            await asyncio.gather(doomed, return_exceptions=True)
        record = await survivor.record_in("expired", request_id)
    assert record["error"]["code"] == "gateway_died"
    assert record["replica"] in record["error"]["message"]
    assert await survivor.metric("duet_reaped_total") == 1
    async with Redis.from_url(world.redis_url, decode_responses=True) as redis:
        keys = await keys_under(redis, world.prefix)
        assert len(keys) >= 4
        assert {key: ttl for key in keys if (ttl := await redis.pttl(key)) < 0} == {}


def gateway_pid(child: Child) -> int:
    """The gateway's own pid: the guard is its parent."""
    from common.process.guard import descendants

    return next(
        pid
        for pid in descendants(child.pid)
        if b"cli.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and b"guard.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
