"""What can be read: a request's events, the newest requests, the engines' loads."""

from __future__ import annotations

import asyncio

import pytest

from common.errors import BadRequest
from gateway.lifecycle import Event, State
from gateway.store.port import Load, Store
from tests.contract.store.conftest import RECORD_TTL, Bench, on_memory
from tests.contract.store.samples import DECODE, PREFILL, START, Author, new_record, places


async def test_an_unknown_request_is_none(store: Store) -> None:
    assert await store.get("nobody") is None
    assert await store.get("}{") is None
    assert await store.events("nobody") == []


async def test_events_tell_the_life_in_order(store: Store) -> None:
    record = new_record()
    author = Author(record)
    sent, done = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE)
    await store.admit(record, transitions=[sent])
    await store.apply([done])
    rows = await store.events(record.id)
    assert [(r.event, r.state, r.at) for r in rows] == [
        ("admitted", State.ACCEPTED, START),
        ("prefill_sent", State.PREFILLING, sent.at),
        ("prefill_done", State.PREFILLED, done.at),
    ]


async def test_an_event_tells_which_engines_were_chosen_with_it(store: Store) -> None:
    """The record has those of the last attempt."""
    record = new_record()
    author = Author(record)
    transitions = [author.next(Event.PREFILL_SENT), author.next(Event.RETRIED, prefill=None, decode="d:2", attempt=2)]
    await store.admit(record, transitions=transitions)
    rows = await store.events(record.id)
    assert [dict(row.engines) for row in rows] == [{"prefill": PREFILL, "decode": DECODE}, {}, {"decode": "d:2"}]


async def test_events_can_be_read_on_from_any_of_them(store: Store) -> None:
    record = new_record()
    await store.admit(record, transitions=Author(record).all(Event.PREFILL_SENT, Event.PREFILL_DONE))
    rows = await store.events(record.id)
    for i, row in enumerate(rows):
        assert await store.events(record.id, after=row.id) == rows[i + 1 :]


@pytest.mark.parametrize("after", ["", "7", "-", "1-x", "(1-1", "9" * 20 + "-0", "1-1\n"])
async def test_an_event_id_that_is_none_is_refused(store: Store, after: str) -> None:
    with pytest.raises(BadRequest, match="expected <number>-<number>"):
        await store.events("nobody", after=after)


async def test_recent_is_newest_first_and_bounded(store: Store) -> None:
    records = [new_record(created_at=START + i) for i in range(5)]
    for record in (records[3], records[0], records[4], records[1], records[2]):
        await store.admit(record)
    newest = [r.id for r in reversed(records)]
    assert [r.id for r in await store.recent(10)] == newest
    assert [r.id for r in await store.recent(2)] == newest[:2]
    assert await store.recent(0) == []


async def test_a_refused_admission_moves_nothing_in_recent(store: Store) -> None:
    old, new = new_record(), new_record(created_at=START + 1)
    for record in (old, new):
        await store.admit(record)
    await store.admit(new_record(id=old.id, created_at=START + 2))
    assert [r.id for r in await store.recent(10)] == [new.id, old.id]


async def test_recent_shows_what_became_of_a_request(store: Store) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record, transitions=author.all(Event.PREFILL_SENT))
    await store.apply([author.next(Event.FAILED, error={"status": 502, "message": "no"})])
    (kept,) = await store.recent(1)
    assert (kept.state, kept.error) == (State.FAILED, {"status": 502, "message": "no"})


async def test_loads_count_the_places_of_all(bench: Bench) -> None:
    store, until = bench.store, bench.now() + 60
    one, two = new_record(), new_record(owner="replica-b")
    await store.admit(one, loads=places(one, until=until))
    await store.admit(two, loads=[Load(DECODE, two.id, until)])
    assert await store.loads([PREFILL, DECODE, "idle:1"]) == {PREFILL: 1, DECODE: 2, "idle:1": 0}
    assert await store.loads([]) == {}


async def test_a_place_is_freed_once(bench: Bench) -> None:
    store, until = bench.store, bench.now() + 60
    one, two = new_record(), new_record()
    for record in (one, two):
        await store.admit(record, loads=places(record, until=until))
    for _ in range(2):
        await store.apply([], free=places(one, until=until))
        assert await store.loads([PREFILL, DECODE]) == {PREFILL: 1, DECODE: 1}


async def test_a_repeated_admission_takes_no_second_place(bench: Bench) -> None:
    record = new_record()
    for _ in range(2):
        await bench.store.admit(record, loads=places(record, until=bench.now() + 60))
    assert await bench.store.loads([PREFILL]) == {PREFILL: 1}


async def test_a_place_ends_by_itself_and_a_longer_one_stays(bench: Bench) -> None:
    store = bench.store
    long, short = new_record(), new_record()
    await store.admit(long, loads=[Load(DECODE, long.id, bench.now() + 60)])
    await store.admit(short, loads=[Load(DECODE, short.id, bench.now() + 0.15)])
    await bench.wait(0.2)
    assert await store.loads([DECODE]) == {DECODE: 1}


async def test_a_ping_takes_no_negative_time(store: Store) -> None:
    assert 0 <= await store.ping() < 5


async def test_reads_and_writes_go_side_by_side(store: Store) -> None:
    records = [new_record() for _ in range(40)]
    await asyncio.gather(*(store.admit(r) for r in records), *(store.recent(10) for _ in range(10)))
    assert {r.id for r in await store.recent(100)} == {r.id for r in records}


async def test_memory_forgets_what_its_time_is_over_for() -> None:
    """Where time is real the keys' times to live are looked at instead: see test_redis.py."""
    async with on_memory() as bench:
        store = bench.store
        ended, live = new_record(), new_record()
        await store.admit(live)
        await store.admit(ended, transitions=[Author(ended).next(Event.CANCELLED)])
        await bench.wait(RECORD_TTL - 1)
        assert await store.get(ended.id) is not None
        await bench.wait(1)
        assert await store.get(ended.id) is None
        assert await store.events(ended.id) == []
        assert [r.id for r in await store.recent(10)] == [live.id]
        late = Author(ended).next(Event.PREFILL_SENT)
        assert (await store.apply([late]))[0].state is None
        await store.admit(ended)
        assert await store.get(ended.id) == ended, "an id whose time is over is free again"
