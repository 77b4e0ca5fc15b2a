"""Drain, undrain, add, remove: said to one replica, done by all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from engines.sim.engine import SimEngine
from gateway.store.keys import Keys
from tests.awaiting import until
from tests.integration.admin import SHOWS_WITHIN, engine, listening, until_engine, until_gone
from tests.integration.conftest import Pair, World
from tests.integration.test_errors import error_of

STREAM = {"model": "sim", "prompt": "x", "max_tokens": 60, "stream": True}


async def two_replicas(world: World) -> tuple[Pair, Pair, SimEngine, str]:
    """Two gateways over one prefill and two decode engines; the second decode engine's id with it."""
    await world.engines()
    assert world.decode is not None
    other, url = await world.another()
    decode = (world.decode[1], url)
    one, two = await world.gateway(decode=decode), await world.gateway(decode=decode)
    return one, two, other, url.removeprefix("http://")


async def test_a_drained_engine_gets_nothing_new_and_loses_nothing(world: World) -> None:
    one, two, other, id_ = await two_replicas(world)
    one.decode.latency.between_tokens = other.latency.between_tokens = 0.02
    first = one.decode_url.removeprefix("http://")
    async with (
        one.client.stream("POST", "/v1/completions", json=STREAM) as a,
        one.client.stream("POST", "/v1/completions", json=STREAM) as b,  # each replica knows at once what it has sent
        two.client.stream("POST", "/v1/completions", json=STREAM) as c,
    ):
        reply = await one.client.post(f"/admin/engines/{id_}/drain")
        assert (reply.status_code, reply.json()["draining"], reply.json()["up"]) == (200, True, True)
        await until_engine(two, id_, "the other replica sees the drain", draining=True)
        before = len(other.calls)
        for pair in (one, two, one, two):
            assert (await pair.complete(max_tokens=1)).status_code == 200
        assert len(other.calls) == before, "nothing new goes to it"
        texts = [[line async for line in reply.aiter_lines()] for reply in (a, b, c)]
    assert all(lines.count("data: [DONE]") == 1 and "error" not in "".join(lines) for lines in texts)
    assert other.calls, "one of the streams ran on it"
    assert other.calls[0].end == "done"

    reply = await two.client.post(f"/admin/engines/{first}/drain")
    assert reply.status_code == 200
    refused = await two.complete()
    assert (refused.status_code, error_of(refused.json())["code"]) == (503, "no_routable_engine")
    assert "is not draining" in refused.text
    assert (await two.client.post(f"/admin/engines/{id_}/undrain")).json()["draining"] is False
    await until_engine(one, id_, "the other replica sees that it is back", draining=False)
    assert (await one.complete()).status_code == 200
    assert len(other.calls) == before + 1


async def test_a_replica_that_starts_later_knows_the_orders_before_its_first_request(world: World) -> None:
    one, _, other, id_ = await two_replicas(world)
    added, added_url = await world.another()
    await one.client.post(f"/admin/engines/{id_}/drain")
    assert (await one.client.post("/admin/engines", json={"url": added_url, "role": "decode"})).status_code == 201
    await one.client.delete(f"/admin/engines/{one.decode_url.removeprefix('http://')}")
    late = await world.gateway(decode=(one.decode_url, f"http://{id_}"))
    for _ in range(3):
        assert (await late.complete(max_tokens=1)).status_code == 200
    assert (len(added.calls), len(other.calls), len(one.decode.calls)) == (3, 0, 0)


async def test_an_added_engine_soon_takes_traffic_everywhere(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    more, url = await world.another()
    async with listening(two) as events:
        reply = await one.client.post("/admin/engines", json={"url": url, "role": "decode"})
        assert reply.status_code == 201
        assert reply.json()["id"] == url.removeprefix("http://")
        told = await events.until("engine_added", engine=reply.json()["id"])
        assert told.name == "engine"

        async def takes() -> bool:
            await two.complete(max_tokens=1)
            return bool(more.calls)

        await until(takes, "the added engine gets a request of the other replica", within=SHOWS_WITHIN)
    again = await two.client.post("/admin/engines", json={"url": url, "role": "decode"})
    assert again.status_code == 201, "adding it again changes nothing"


async def test_a_removed_engine_ends_what_it_has_and_stays_away(world: World) -> None:
    one, two, other, id_ = await two_replicas(world)
    await one.client.post(f"/admin/engines/{one.decode_url.removeprefix('http://')}/drain")
    other.latency.between_tokens = 0.02
    async with one.client.stream("POST", "/v1/completions", json=STREAM) as stream:
        reply = await two.client.delete(f"/admin/engines/{id_}")
        assert (reply.status_code, reply.json()) == (200, {"id": id_, "removed": True, "running": False})
        await until_engine(one, id_, "it is on its way out where something runs on it", leaving=True)
        assert (await one.client.post(f"/admin/engines/{id_}/drain")).status_code == 404
        lines = [line async for line in stream.aiter_lines()]
    assert lines.count("data: [DONE]") == 1
    await until_gone(one, id_)
    late = await world.gateway(decode=(one.decode_url, f"http://{id_}"))
    assert await engine(late, id_) is None, "settings name it, but it was removed"
    back = await late.client.post("/admin/engines", json={"url": f"http://{id_}", "role": "decode"})
    assert back.status_code == 201
    await until_engine(one, id_, "it is back", up=True, leaving=False)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"url": "ftp://x", "role": "decode"}, 400, "expected http://host:port"),
        ({"url": "http://127.0.0.1:9/?magic=1", "role": "decode"}, 400, "can be told nothing"),
        ({"url": "http://127.0.0.1:9", "role": "cook"}, 400, "role"),
        ({"url": "http://127.0.0.1:9"}, 400, "role"),
        ({"url": "http://127.0.0.1:9", "role": "decode", "tp": 1}, 400, "tp"),
        ({"url": "{decode}", "role": "prefill"}, 409, "is there as decode engine"),
    ],
)
async def test_an_engine_that_cannot_be_added_is_refused(
    pair: Pair, body: dict[str, Any], status: int, said: str
) -> None:
    body = {name: value.format(decode=pair.decode_url) if name == "url" else value for name, value in body.items()}
    reply = await pair.client.post("/admin/engines", json=body)
    assert reply.status_code == status
    assert said in error_of(reply.json())["message"]
    assert len((await pair.client.get("/admin/engines")).json()["engines"]) == 2


async def test_what_is_declared_of_an_engine_must_stay_true(pair: Pair) -> None:
    """Also of one that is there by the settings: its size cannot be one thing now and another later."""

    async def put(size: int) -> Any:
        identity = {"tensor_parallel_size": size}
        return await pair.client.post(
            "/admin/engines", json={"url": pair.decode_url, "role": "decode", "identity": identity}
        )

    assert (await put(1)).status_code == 201
    refused = await put(3)
    assert refused.status_code == 409
    assert "tensor_parallel_size: declared as 3" in error_of(refused.json())["message"]


async def test_orders_outlive_a_redis_that_comes_back_empty(world: World) -> None:
    one, two, _, id_ = await two_replicas(world)
    await one.client.post(f"/admin/engines/{id_}/drain")
    await until_engine(two, id_, "the other replica sees the drain", draining=True)
    orders = Keys(world.prefix).orders
    async with Redis.from_url(world.redis_url) as redis:
        await redis.delete(orders)

        async def back() -> bool:
            return bool(await redis.exists(orders))

        await until(back, "the orders are written again", within=SHOWS_WITHIN)
    for pair in (one, two, await world.gateway(decode=(one.decode_url, f"http://{id_}"))):
        assert (await engine(pair, id_) or {})["draining"] is True


async def test_the_drain_of_an_engine_that_is_away_can_be_taken_back(world: World, tmp_path: Path) -> None:
    await world.engines()
    assert world.decode is not None
    file, decode = tmp_path / "engines.yaml", world.decode[1]
    file.write_text(json.dumps({"decode": [decode]}))
    pair = await world.gateway(decode=(), engines_file=str(file))
    id_ = decode.removeprefix("http://")
    assert (await pair.client.post(f"/admin/engines/{id_}/drain")).status_code == 200
    file.write_text("{}")
    await until_gone(pair, id_)
    back = await pair.client.post(f"/admin/engines/{id_}/undrain")
    assert (back.status_code, back.json()) == (200, {"id": id_, "draining": False})
    assert (await pair.client.post(f"/admin/engines/{id_}/undrain")).status_code == 404
    file.write_text(json.dumps({"decode": [decode]}))
    await until_engine(pair, id_, "it is back and not drained", up=True, draining=False)


async def test_an_unknown_engine_is_404(pair: Pair) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/drain"), ("POST", "/undrain")):
        reply = await pair.client.request(method, f"/admin/engines/10.9.9.9:1{path}")
        assert (reply.status_code, error_of(reply.json())["code"]) == (404, "engine_not_found")


async def test_how_full_an_engine_is_is_shown(pair: Pair) -> None:
    pair.decode.rule("hang")
    client = asyncio.create_task(pair.chat())

    async def full() -> dict[str, Any] | None:
        found = (await pair.client.get(f"/admin/engines/{pair.prefill_url.removeprefix('http://')}")).json()
        return found if found["kv"]["usage"] > 0 else None

    found = await until(full, "the prefill engine holds KV that nobody fetched")
    assert (found["kv"]["lease_seconds"], found["breaker"], found["identity"]) == (30.0, "closed", None)
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)


async def test_while_redis_is_away_nothing_is_ordered(world: World) -> None:
    pair = await world.gateway(redis_url="redis://127.0.0.1:1/0")
    reply = await pair.client.post(f"/admin/engines/{pair.decode_url.removeprefix('http://')}/drain")
    assert (reply.status_code, error_of(reply.json())["code"]) == (503, "store_unavailable")


async def test_while_redis_is_away_the_engines_are_shown(world: World) -> None:
    pair = await world.gateway(redis_url="redis://127.0.0.1:1/0")
    reply = await pair.client.get("/admin/topology")
    assert reply.status_code == 200
    shown = reply.json()
    assert (len(shown["engines"]), shown["edges"]) == (2, [])
    assert shown["edges_fault"].startswith("the store ")
