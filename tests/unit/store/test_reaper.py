"""The reaper's own conduct: leases kept, outages outlived, the living left alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from common.ids import RandomIds
from gateway.lifecycle import Event, Record, State
from gateway.store.memory import MemoryStore
from gateway.store.reaper import Reaper
from tests.contract.store.samples import Author, new_record
from tests.fakes.clock import FakeClock

LEASE = 10.0


class Desk:
    """Two replicas over one store in memory; `replica-a` dies when nobody beats for it any more."""

    def __init__(self, store_type: type[MemoryStore] = MemoryStore) -> None:
        self.clock = FakeClock()
        self.store = store_type(self.clock)
        self.told: list[int] = []
        self.reaper = Reaper(
            self.store,
            clock=self.clock,
            ids=RandomIds(),
            owner="replica-b",
            lease=LEASE,
            on_reaped=self.told.append,
        )

    async def dead_request(self) -> Record:
        await self.store.heartbeat("replica-a", 0)
        record = new_record()
        await self.store.admit(record)
        return record

    async def state_of(self, record: Record) -> State:
        kept = await self.store.get(record.id)
        assert kept is not None
        return kept.state


async def test_it_tells_how_many_it_closed_and_nothing_if_none() -> None:
    desk = Desk()
    await desk.reaper.beat()
    for _ in range(3):
        await desk.dead_request()
    await desk.reaper.beat()
    await desk.reaper.beat()
    assert desk.told == [3]


async def test_it_never_closes_its_own_requests() -> None:
    """Its lease may have been over for a moment, while the process was stopped."""
    desk = Desk()
    record = new_record(owner="replica-b")
    await desk.reaper.beat()
    await desk.store.admit(record)
    desk.clock.advance(2 * LEASE)
    assert await desk.reaper.reap() == 0
    await desk.reaper.beat()
    assert await desk.store.get(record.id) == record


async def test_an_outage_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    for _ in range(2):
        desk.store.available = False
        for _ in range(3):
            await desk.reaper.beat()
        desk.store.available = True
        for _ in range(3):
            await desk.reaper.beat()
    messages = [record.getMessage().split(":")[0] for record in caplog.records]
    assert messages == ["no heartbeat", "the store is back after 3 failed heartbeats"] * 2


async def test_after_an_outage_owners_get_time_to_come_back() -> None:
    """Nobody could renew a lease meanwhile, so all of them are over and their owners may well be alive."""
    desk = Desk()
    alive = new_record()
    await desk.store.heartbeat("replica-a", LEASE)
    await desk.store.admit(alive)
    desk.store.available = False
    desk.clock.advance(3 * LEASE)
    await desk.reaper.beat()
    desk.store.available = True
    await desk.reaper.beat()
    desk.clock.advance(LEASE / 2)
    await desk.reaper.beat()
    assert await desk.state_of(alive) is State.ACCEPTED
    await desk.store.heartbeat("replica-a", LEASE)
    desk.clock.advance(LEASE / 2)
    await desk.reaper.beat()
    assert await desk.state_of(alive) is State.ACCEPTED
    desk.clock.advance(LEASE)
    await desk.reaper.beat()
    assert await desk.state_of(alive) is State.EXPIRED, "it did not come back after all"


async def test_after_it_stood_still_itself_owners_get_time_to_come_back() -> None:
    """They may stand on the same machine, and be a moment later than this one."""
    desk = Desk()
    alive = new_record()
    await desk.reaper.beat()
    await desk.store.heartbeat("replica-a", LEASE)
    await desk.store.admit(alive)
    desk.clock.advance(2 * LEASE)
    await desk.reaper.beat()
    assert await desk.state_of(alive) is State.ACCEPTED
    for _ in range(2):
        desk.clock.advance(LEASE / 2)
        await desk.reaper.beat()
    assert await desk.state_of(alive) is State.EXPIRED, "it did not come back after all"


class Lively(MemoryStore):
    """The owner comes back right after somebody looked for its orphans."""

    async def orphans(self) -> Sequence[Record]:
        found = await super().orphans()
        for record in found:
            await self.apply([Author(record).next(Event.PREFILL_SENT)])
        return found


async def test_an_owner_that_moved_on_keeps_its_request_and_its_claim() -> None:
    desk = Desk(Lively)
    record = await desk.dead_request()
    assert await desk.reaper.reap() == 0
    assert await desk.state_of(record) is State.PREFILLING
    assert [r.id for r in await MemoryStore.orphans(desk.store)] == [record.id]
    assert desk.told == []


class Broken(MemoryStore):
    async def orphans(self) -> Sequence[Record]:
        raise ZeroDivisionError


async def test_a_fault_of_ours_does_not_cost_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(Broken)
    await desk.reaper.beat()
    desk.clock.advance(LEASE - 1)
    await desk.reaper.beat()
    desk.clock.advance(LEASE - 1)
    assert await MemoryStore.orphans(desk.store) == []
    assert "ZeroDivisionError" in caplog.text


async def test_it_takes_the_lease_before_it_says_that_it_started() -> None:
    desk = Desk()
    await desk.reaper.start()
    await desk.store.admit(new_record(owner="replica-b"))
    desk.clock.advance(LEASE - 1)
    assert await desk.store.orphans() == []
    desk.clock.advance(1)
    assert len(await desk.store.orphans()) == 1
    await desk.reaper.stop()


async def test_it_starts_and_stops_without_a_store(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.store.available = False
    await desk.reaper.start()
    await desk.reaper.stop()
    assert "runs out by itself" in caplog.text


class Heard(MemoryStore):
    """Says when a heartbeat got through."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.heard = asyncio.Event()

    async def heartbeat(self, owner: str, lease: float) -> None:
        await super().heartbeat(owner, lease)
        self.heard.set()


async def heard_again(store: Heard) -> None:
    store.heard.clear()
    async with asyncio.timeout(10):
        await store.heard.wait()


async def test_it_beats_in_the_background_until_it_is_stopped() -> None:
    store = Heard(FakeClock())
    reaper = Reaper(store, clock=FakeClock(), ids=RandomIds(), owner="replica-b", lease=0.1)
    await reaper.start()
    for _ in range(3):
        await heard_again(store)
    await reaper.stop()
    store.heard.clear()
    await asyncio.sleep(0.15)
    assert not store.heard.is_set()


async def test_it_comes_back_by_itself_after_an_outage() -> None:
    """And long before its usual pace of 900 s, as the lease runs meanwhile."""
    store = Heard(FakeClock())
    reaper = Reaper(store, clock=FakeClock(), ids=RandomIds(), owner="replica-b", lease=3600.0)
    store.available = False
    await reaper.start()
    store.available = True
    await heard_again(store)
    await reaper.stop()
