"""Keys that somebody else wrote, of another type or no text: each spoils itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from common.connectors import DEFAULT, connector
from common.engine import Role
from common.registry import Announcement
from gateway.discovery import Discovery
from gateway.discovery.registered import Registered
from gateway.lifecycle import State
from gateway.store.keys import Keys
from gateway.store.port import Load, Unreadable
from gateway.store.redis import RedisStore
from tests.awaiting import until
from tests.contract.store.samples import DECODE, PREFILL, new_record
from tests.contract.store.test_reaping import reaper_of
from tests.fakes.clock import FakeClock
from tests.redis_server import scratch_prefix

GOOD, ODD = "10.0.0.2:8200", "x:1"
UNTIL = 4e9
"""Epoch seconds."""


@pytest.fixture
async def keys(redis_url: str) -> AsyncIterator[Keys]:
    async with scratch_prefix(redis_url) as made:
        yield Keys(made)


@pytest.fixture
async def store(redis_url: str, keys: Keys) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(redis_url, prefix=keys.prefix)
    yield store
    await store.aclose()


@pytest.fixture
async def raw(redis_url: str, keys: Keys) -> AsyncIterator[Any]:
    """A client that writes bytes, and removes the keys that are no text."""
    async with Redis.from_url(redis_url) as made:
        yield made
        async for key in made.scan_iter(match=f"{keys.prefix}*"):
            await made.delete(key)


@pytest.fixture
async def announced(raw: Any, keys: Keys) -> dict[str, float]:
    """One good announcement; what is to stand in the index beside it may be added."""
    said = Announcement(f"http://{GOOD}", Role.DECODE, "a", 1.0).text()
    await raw.set(keys.registry.entry(GOOD), said)
    await raw.zadd(keys.registry.index, {GOOD: 1.0})
    return {GOOD: 1.0}


async def found(store: RedisStore) -> tuple[list[str], str | None]:
    """Whom a gateway finds at its start, and what it complains of."""
    discovery = Discovery([Registered(store, connector(DEFAULT), FakeClock())], interval=3600)
    await discovery.start()
    await discovery.stop()
    return list(discovery.engines()), discovery.asked[0].fault


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"\xff\xfe{}", "expected a JSON object"),
        (b'{"url":"http://x:1","role":[]}', "role is []"),
        (b'{"url":"http://x:1","role":"decode","since":%s}' % (b"9" * 400), "since is 999"),
        (b'{"url":"http://x:1","role":"decode","since":NaN}', "finite numbers"),
        (b"[" * 100_000, "100000 characters"),
    ],
    ids=["bytes", "role", "since", "nan", "deep"],
)
async def test_an_odd_announcement_hides_no_other(
    value: bytes, fault: str, store: RedisStore, raw: Any, keys: Keys, announced: dict[str, float]
) -> None:
    await raw.set(keys.registry.entry(ODD), value)
    await raw.zadd(keys.registry.index, {ODD: 1})
    ids, complaint = await found(store)
    assert ids == [GOOD]
    assert f"the announcement of engine {ODD} is refused: " in (complaint or "")
    assert fault in (complaint or "")


async def test_a_member_that_is_no_text_hides_no_other(
    store: RedisStore, raw: Any, keys: Keys, announced: dict[str, float]
) -> None:
    await raw.set(keys.registry.entry("").encode() + b"\xff:1", b"\xff")
    await raw.zadd(keys.registry.index, {b"\xff:1": 1})
    assert await found(store) == ([GOOD], None)


async def test_an_announcement_of_another_type_is_complained_of_alone(
    store: RedisStore, raw: Any, keys: Keys, announced: dict[str, float]
) -> None:
    await raw.lpush(keys.registry.entry(ODD), "a")
    await raw.zadd(keys.registry.index, {ODD: 1})
    listed = await store.announced()
    assert isinstance(listed[GOOD], str)
    assert isinstance(listed[ODD], Unreadable)
    ids, complaint = await found(store)
    assert ids == [GOOD]
    assert f"the announcement of engine {ODD} is refused: its key is of another type" in (complaint or "")


async def test_an_index_of_another_type_is_told(store: RedisStore, raw: Any, keys: Keys) -> None:
    await raw.set(keys.registry.index, "a")
    ids, complaint = await found(store)
    assert (ids, "the store refused (registry)" in (complaint or "")) == ([], True)


async def test_a_load_of_another_type_leaves_the_others(store: RedisStore, raw: Any, keys: Keys) -> None:
    record = new_record()
    await store.admit(record, loads=[Load(PREFILL, record.id, UNTIL)])
    await raw.lpush(keys.load(DECODE), "a")
    assert await store.loads([PREFILL, DECODE]) == {PREFILL: 1}


async def test_odd_records_and_claims_keep_no_other_from_being_closed(store: RedisStore, raw: Any, keys: Keys) -> None:
    await store.heartbeat("replica-a", 0)
    await store.heartbeat("replica-c", 0)
    record, deep = new_record(), new_record()
    await store.admit(record)
    await store.admit(deep)
    await raw.hset(keys.request(deep.id), "handoff", "[" * 100_000)
    await raw.sadd(keys.owned("replica-a"), "odd", b"\xff")
    await raw.lpush(keys.request("odd"), "a")
    await raw.set(keys.owned("replica-c"), "a")
    await reaper_of(store, "replica-b").beat()
    kept = await store.get(record.id)
    assert kept is not None
    assert kept.state is State.EXPIRED
    assert {r.id for r in await store.recent(10)} == {record.id}


async def test_odd_rows_of_the_feed_hide_no_other(store: RedisStore, raw: Any, keys: Keys) -> None:
    await raw.xadd(keys.feed, {"a": "b"}, id="7000-1")
    await raw.xadd(keys.feed, {"at": "nan", "version": "x", "event": b"\xff"}, id="8000-1")
    await store.tell(9.5, {"event": "engine_down", "engine": PREFILL})
    rows = await store.feed(10, after="0-0")
    assert [(row.at, dict(row.fields)) for row in rows] == [
        (7.0, {"a": "b"}),
        (8.0, {"event": "\\xff"}),
        (9.5, {"event": "engine_down", "engine": PREFILL}),
    ]


async def test_a_cancellation_that_is_no_text_ends_no_listening(store: RedisStore, raw: Any, keys: Keys) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async for id_ in store.asked_cancels("replica-a"):
            heard.append(id_)

    async def both() -> bool:
        await raw.publish(keys.cancels("replica-a"), b"\xff")
        await store.ask_cancel("replica-a", "r1")
        return {"\\xff", "r1"} <= set(heard)

    listening = asyncio.create_task(listen())
    try:
        await until(both, "both are heard")
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
