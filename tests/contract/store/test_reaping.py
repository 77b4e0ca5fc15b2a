"""The reaper over each store: what a dead replica left is closed once, by whoever comes first."""

from __future__ import annotations

import asyncio

import pytest

from gateway.lifecycle import Event, Record, Speech, State
from gateway.store.port import Load, Store
from gateway.store.reaper import Reaper
from tests.contract.store.conftest import Bench
from tests.contract.store.samples import DECODE, IDS, PREFILL, Author, new_record, places
from tests.fakes.clock import FakeClock


def reaper_of(store: Store, owner: str, lease: float = 60.0, clock: FakeClock | None = None) -> Reaper:
    return Reaper(store, clock=clock or FakeClock(), ids=IDS, owner=owner, lease=lease)


async def dead_replica(bench: Bench, requests: int) -> list[Record]:
    """Requests of `replica-a` in each live state, whose lease is over."""
    await bench.store.heartbeat("replica-a", 0)
    paths = [[], [Event.PREFILL_SENT], [Event.PREFILL_SENT, Event.PREFILL_DONE], [Event.DECODE_SENT]]
    records = []
    for i in range(requests):
        record = new_record()
        steps = Author(record).all(*paths[i % len(paths)])
        await bench.store.admit(record, transitions=steps, loads=places(record, until=bench.now() + 60))
        records.append(record)
    return records


async def test_a_dead_replicas_requests_expire_and_free_their_places(bench: Bench) -> None:
    records = await dead_replica(bench, 4)
    await reaper_of(bench.store, "replica-b").beat()
    for record in records:
        kept = await bench.store.get(record.id)
        assert kept is not None
        assert kept.state is State.EXPIRED
        assert kept.error is not None
        assert (kept.error["code"], kept.error["status"]) == ("gateway_died", 503)
        assert "replica-a" in kept.error["message"]
    assert await bench.store.loads([PREFILL, DECODE]) == {PREFILL: 0, DECODE: 0}
    assert await bench.store.orphans() == []


async def test_speech_ends_with_the_replica_that_drove_it(bench: Bench) -> None:
    await bench.store.heartbeat("replica-a", 0)
    record = new_record(speech=Speech.SPEAKING, talker="t:1", code2wav="c:1")
    loads = [Load(engine, record.id, bench.now() + 60) for engine in record.engines]
    await bench.store.admit(record, transitions=Author(record).all(Event.DECODE_SENT), loads=loads)
    await reaper_of(bench.store, "replica-b").beat()
    kept = await bench.store.get(record.id)
    assert kept is not None
    assert (kept.state, kept.speech) == (State.EXPIRED, Speech.FAILED)
    assert set((await bench.store.loads(record.engines)).values()) == {0}


async def test_racing_reapers_close_each_request_once(bench: Bench) -> None:
    records = await dead_replica(bench, 12)
    told: list[int] = []
    reapers = [
        Reaper(bench.store, clock=FakeClock(), ids=IDS, owner=f"replica-{i}", lease=60.0, on_reaped=told.append)
        for i in range(4)
    ]
    await asyncio.gather(*(reaper.beat() for reaper in reapers))
    assert sum(told) == len(records)
    for record in records:
        events = [row.event for row in await bench.store.events(record.id)]
        assert events.count("expired") == 1


async def test_one_beat_closes_all_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.redis.CLAIMS_AT_ONCE", 5)
    records = await dead_replica(bench, 13)
    await reaper_of(bench.store, "replica-b").beat()
    states = {(await bench.store.get(r.id) or r).state for r in records}
    assert states == {State.EXPIRED}


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
async def test_a_replica_whose_clock_is_wrong_reaps_nobody_alive(bench: Bench, skew: float) -> None:
    """A lease runs by the store's clock: an hour more or less at a replica makes no owner dead."""
    record = new_record()
    await bench.store.heartbeat("replica-a", 30)
    await bench.store.admit(record)
    await reaper_of(bench.store, "replica-b", lease=1.0, clock=FakeClock(bench.now() + skew)).beat()
    assert await bench.store.get(record.id) == record


async def test_retiring_hands_what_is_open_to_the_others(bench: Bench) -> None:
    leaving, staying = reaper_of(bench.store, "replica-a"), reaper_of(bench.store, "replica-b")
    await leaving.start()
    record = new_record()
    await bench.store.admit(record)
    await staying.beat()
    assert await bench.store.get(record.id) == record
    await leaving.stop()
    await staying.beat()
    kept = await bench.store.get(record.id)
    assert kept is not None
    assert kept.state is State.EXPIRED
