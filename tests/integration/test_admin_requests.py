"""Pages of requests, one request's timeline, and what happens as a stream of events: the same on every replica."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import httpx
import pytest

from gateway.api.streams import MOST
from tests.awaiting import until
from tests.integration.admin import listening
from tests.integration.conftest import Pair, World
from tests.integration.test_errors import error_of


async def finished(pair: Pair, count: int) -> list[str]:
    """Ids of new requests that ended well, oldest first."""
    ids = [(await pair.complete(max_tokens=1)).headers["x-duet-request-id"] for _ in range(count)]
    for id_ in ids:
        await pair.record_in("finished", id_)
    return ids


async def test_pages_and_filters(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    ids = await finished(one, 3) + await finished(two, 2)
    one.decode.rule("status", on="decode", status=400)
    failed = (await one.complete(max_tokens=1)).headers["x-duet-request-id"]
    await one.record_in("failed", failed)

    async def listed(**params: object) -> list[str]:
        found: list[str] = []
        page = (await two.client.get("/admin/requests", params=params)).json()
        while True:
            found += [r["id"] for r in page["requests"]]
            if page["next"] is None:
                return found
            page = (await two.client.get("/admin/requests", params={**params, "before": page["next"]})).json()

    newest = [failed, *reversed(ids)]
    assert await listed() == newest
    assert await listed(limit=1) == newest
    assert await listed(limit=2, state="finished") == newest[1:]
    assert await listed(state=["failed", "cancelled"]) == [failed]
    assert await listed(engine=one.prefill_url.removeprefix("http://"), limit=4) == newest
    assert await listed(engine="10.9.9.9:1") == []
    replica = (await two.client.get("/admin/topology")).json()["replica"]
    assert await listed(replica=replica) == list(reversed(ids[3:]))
    assert await listed(model="other") == []


@pytest.mark.parametrize("before", ["1", "x_y", "1.0_", "_a", "1e9_a"])
async def test_a_page_that_is_none_is_refused(pair: Pair, before: str) -> None:
    reply = await pair.client.get("/admin/requests", params={"before": before})
    assert (reply.status_code, error_of(reply.json())["param"]) == (400, "before")


async def test_a_requests_timeline_is_a_waterfall(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    one.prefill.latency.per_prompt_token = 0.01
    one.decode.latency.between_tokens = 0.01
    reply = await one.chat(stream=True, max_tokens=8)
    record = await two.record_in("finished", reply.headers["x-duet-request-id"])
    spans = record["spans"]
    assert [s["name"] for s in spans] == ["queue", "prefill", "handoff", "decode"]
    assert [s["engine"] for s in spans[1:]] == [record["prefill"], record["prefill"], record["decode"]]
    for earlier, later in pairwise(spans):
        assert earlier["start"] <= earlier["end"] <= later["start"] + 1e-6
    took = {s["name"]: s["end"] - s["start"] for s in spans}
    assert took["prefill"] > 0
    assert took["decode"] > 0
    assert spans[0]["start"] == record["created_at"]
    assert spans[-1]["end"] == record["updated_at"]


async def test_a_retry_is_a_second_attempt_in_the_timeline(pair: Pair) -> None:
    pair.prefill.rule("drop", on="prefill")
    reply = await pair.chat()
    record = await pair.record_in("finished", reply.headers["x-duet-request-id"])
    names = [(s["name"], s["attempt"]) for s in record["spans"]]
    assert names == [
        ("queue", 1),
        ("prefill", 1),
        ("queue", 2),
        ("prefill", 2),
        ("handoff", 2),
        ("decode", 2),
    ]
    assert {s["engine"] for s in record["spans"] if s["name"] == "prefill"} == {record["prefill"]}


async def test_the_engines_of_an_earlier_attempt_are_told(world: World) -> None:
    await world.engines()
    first, url = await world.another()
    assert world.decode is not None
    pair = await world.gateway(decode=(world.decode[1], url))
    for engine in (first, pair.decode):
        engine.rule("drop", on="decode", times=1)
    record = await pair.record_in("finished", (await pair.chat()).headers["x-duet-request-id"])
    assert record["attempt"] == 3
    tried = [s["engine"] for s in record["spans"] if s["name"] == "decode"]
    ids = {one.removeprefix("http://") for one in (pair.decode_url, url)}
    assert (set(tried[:2]), tried[2], len(tried)) == (ids, record["decode"], 3)
    named = [e["engines"].get("decode") for e in record["events"] if e["engines"]]
    assert named == tried, "each event tells which were chosen with it"


async def test_the_feed_goes_on_at_another_replica_where_it_stopped(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    async with listening(one) as events:
        (first,) = await finished(two, 1)
        told = await events.until("completed", request=first)
        assert (told.name, told.data["state"]) == ("request", "finished")
    missed = await finished(one, 2)
    async with listening(two, last=told.id) as events:
        seen = []
        while len(seen) < 8:
            told = await events.next()
            if told.name == "request":
                seen.append((told.data["request"], told.data["event"]))
    life = ["admitted", "prefill_sent", "prefill_done", "decode_sent", "completed"]
    ours = [(id_, event) for id_, event in seen if id_ == missed[0]]
    assert ours == [(missed[0], event) for event in life], "nothing is missing, nothing twice"
    assert seen[5][0] == missed[1]


async def test_a_gap_is_told(pair: Pair) -> None:
    await finished(pair, 1)
    async with listening(pair, last="1-0") as events:
        told = await events.next()
        assert (told.name, told.data) == ("gap", {"after": "1-0"})
        assert (await events.until("admitted")).name == "request", "and what there is follows"


async def test_one_requests_events_end_with_it(world: World) -> None:
    one, two = await world.gateway(), await world.gateway()
    one.decode.latency.between_tokens = 0.02
    body = {"model": "sim", "prompt": "x", "max_tokens": 30, "stream": True}
    async with one.client.stream("POST", "/v1/completions", json=body) as reply:
        request_id = reply.headers["x-duet-request-id"]
        async with listening(two, f"/admin/requests/{request_id}/events") as events:
            first = [(await events.next()) for _ in range(4)]
            assert [t.data["event"] for t in first] == ["admitted", "prefill_sent", "prefill_done", "decode_sent"]
            async for _ in reply.aiter_lines():
                pass
            assert (await events.next()).data["event"] == "completed"
            with pytest.raises(StopAsyncIteration):
                await events.next()
    async with listening(one, f"/admin/requests/{request_id}/events", last=first[2].id) as events:
        assert [(await events.next()).data["event"] for _ in range(2)] == ["decode_sent", "completed"]


async def test_an_engine_that_dies_is_told(pair: Pair) -> None:
    async with listening(pair) as events:
        pair.decode.rule("status", on="health", status=503, times=1000)
        told = await events.until("engine_down", engine=pair.decode_url.removeprefix("http://"))
        assert "answered /health with 503" in told.data["fault"]
        pair.decode.faults.clear()
        await events.until("engine_up", engine=pair.decode_url.removeprefix("http://"))


@pytest.mark.parametrize("last", ["x", "1", "1-", "-1-1"])
async def test_a_last_event_id_that_is_none_is_refused(pair: Pair, last: str) -> None:
    for path in ("/admin/events", "/admin/requests/abc/events"):
        reply = await pair.client.get(path, headers={"last-event-id": last})
        assert reply.status_code in (400, 404)
        error_of(reply.json())


async def test_there_is_a_bound_on_event_streams_and_none_is_left_behind(pair: Pair) -> None:
    async def one(opened: asyncio.Semaphore, done: asyncio.Event) -> int:
        async with pair.client.stream("GET", "/admin/events") as reply:
            parts = reply.aiter_bytes()
            if reply.status_code == 200:
                await anext(parts)
            opened.release()
            await done.wait()
            return reply.status_code

    opened, done = asyncio.Semaphore(0), asyncio.Event()
    limits = httpx.Limits(max_connections=MOST + 10)
    pair.client = httpx.AsyncClient(base_url=pair.url, timeout=20, limits=limits)
    watchers = [asyncio.create_task(one(opened, done)) for _ in range(MOST)]
    for _ in watchers:
        await opened.acquire()
    reply = await pair.client.get("/admin/events")
    assert (reply.status_code, error_of(reply.json())["code"]) == (503, "too_many_event_streams")
    done.set()
    assert await asyncio.gather(*watchers) == [200] * MOST

    async def free() -> bool:
        async with pair.client.stream("GET", "/admin/events") as reply:
            return reply.status_code == 200

    await until(free, "the streams that were left are closed")
    await pair.client.aclose()
