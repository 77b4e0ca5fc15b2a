"""Owners, their claims and leases: nothing of a dead owner is lost, nothing of a living one is taken."""

from __future__ import annotations

import pytest

from gateway.lifecycle import Event, State
from gateway.store.port import Outcome, Store
from tests.contract.store.conftest import Bench
from tests.contract.store.samples import Author, expiry, new_record, other

LEASE = 0.15
"""Seconds; waited for where time is real."""


async def ids_of_orphans(store: Store) -> set[str]:
    return {record.id for record in await store.orphans()}


async def test_an_owner_with_a_lease_has_no_orphans(bench: Bench) -> None:
    await bench.store.heartbeat("replica-a", 60)
    await bench.store.admit(new_record())
    assert await bench.store.orphans() == []


async def test_an_owner_without_a_lease_leaves_its_live_requests(bench: Bench) -> None:
    store = bench.store
    for owner in ("replica-a", "replica-b"):
        await store.heartbeat(owner, 60)
    mine, done, gone, theirs = new_record(), new_record(), new_record(), new_record(owner="replica-b")
    for record in (mine, theirs):
        await store.admit(record, transitions=Author(record).all(Event.PREFILL_SENT))
    await store.admit(done, transitions=[Author(done).next(Event.CANCELLED)])
    await store.admit(gone)
    await store.apply([Author(gone).next(Event.CANCELLED)], disown="replica-a")
    assert await store.orphans() == []
    await store.heartbeat("replica-a", LEASE)
    await bench.wait(LEASE + 0.05)
    assert list(await store.orphans()) == [await store.get(mine.id)]


async def test_orphans_stay_until_somebody_closes_them(bench: Bench) -> None:
    store = bench.store
    await store.heartbeat("replica-a", 0)
    record = new_record()
    await store.admit(record)
    for _ in range(2):
        assert await ids_of_orphans(store) == {record.id}
    (orphan,) = await store.orphans()
    assert (await store.apply([expiry(orphan)], disown="replica-a"))[0].outcome is Outcome.OK
    assert await store.orphans() == []


async def test_a_renewed_lease_takes_nothing_away(bench: Bench) -> None:
    store = bench.store
    await store.heartbeat("replica-a", LEASE)
    record = new_record()
    await store.admit(record)
    await bench.wait(LEASE + 0.05)
    assert await ids_of_orphans(store) == {record.id}
    await store.heartbeat("replica-a", 60)
    assert await store.orphans() == []
    await store.heartbeat("replica-a", 0)
    assert await ids_of_orphans(store) == {record.id}, "its claims were kept all along"


async def test_a_reaped_owner_sees_the_conflict(bench: Bench) -> None:
    store = bench.store
    record = new_record()
    author = Author(record)
    await store.heartbeat("replica-a", 0)
    await store.admit(record, transitions=[author.next(Event.PREFILL_SENT)])
    (orphan,) = await store.orphans()
    await store.apply([expiry(orphan)], disown="replica-a")
    (late,) = await store.apply([author.next(Event.PREFILL_DONE)])
    assert (late.outcome, late.state) == (Outcome.CONFLICT, State.EXPIRED)


async def test_retiring_ends_a_lease_at_once(bench: Bench) -> None:
    store = bench.store
    record = new_record()
    await store.heartbeat("replica-a", 60)
    await store.admit(record)
    await store.retire("replica-a")
    assert await ids_of_orphans(store) == {record.id}


async def test_an_owner_that_retires_with_nothing_open_is_forgotten(bench: Bench) -> None:
    store = bench.store
    await store.heartbeat("replica-a", 60)
    record = new_record()
    await store.admit(record)
    await store.apply([Author(record).next(Event.CANCELLED)], disown="replica-a")
    await store.retire("replica-a")
    await store.retire("never seen")
    assert await store.orphans() == []


async def test_an_owner_before_its_first_heartbeat_is_not_dead(bench: Bench) -> None:
    await bench.store.admit(new_record())
    assert await bench.store.orphans() == []


async def test_an_owner_that_never_had_a_heartbeat_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was away as it started, and it died before the next try: its claim alone must lead to the request."""
    for store in ("memory", "redis"):
        monkeypatch.setattr(f"gateway.store.{store}.FIRST_LEASE", 0.0)
    record = new_record()
    await bench.store.admit(record)
    assert await ids_of_orphans(bench.store) == {record.id}


async def test_an_owner_that_was_forgotten_can_come_back(bench: Bench) -> None:
    store = bench.store
    await store.heartbeat("replica-a", 0)
    assert await store.orphans() == []
    record = new_record()
    await store.admit(record)
    assert await store.orphans() == []
    await store.heartbeat("replica-a", 0)
    assert await ids_of_orphans(store) == {record.id}


async def test_a_request_that_did_not_end_is_still_claimed(bench: Bench) -> None:
    """A write that was lost leaves the record live and the owner's last step in conflict: a reaper must find it."""
    store = bench.store
    record = new_record()
    author = Author(record)
    await store.heartbeat("replica-a", 0)
    await store.admit(record)
    author.next(Event.PREFILL_SENT)  # this one is never written
    (end,) = await store.apply([author.next(Event.CANCELLED)], disown="replica-a")
    assert (end.outcome, end.state) == (Outcome.CONFLICT, State.ACCEPTED)
    assert await ids_of_orphans(store) == {record.id}


async def test_two_reapers_close_a_request_once(bench: Bench) -> None:
    store = bench.store
    await store.heartbeat("replica-a", 0)
    record = new_record()
    await store.admit(record)
    (orphan,) = await store.orphans()
    first = expiry(orphan)
    outcomes = [(await store.apply([t], disown="replica-a"))[0].outcome for t in (first, other(first))]
    assert outcomes == [Outcome.OK, Outcome.CONFLICT]
    assert await store.orphans() == []
    assert [row.event for row in await store.events(record.id)] == ["admitted", "expired"]


async def test_a_claim_on_another_owners_request_is_dropped(bench: Bench) -> None:
    """An admission that lost its id to another replica still left a claim."""
    store = bench.store
    for owner in ("replica-a", "replica-b"):
        await store.heartbeat(owner, 60)
    record = new_record()
    await store.admit(record)
    await store.admit(new_record(id=record.id, owner="replica-b"))
    await store.retire("replica-b")
    assert await store.orphans() == []


async def test_every_orphan_is_found_in_the_end(bench: Bench) -> None:
    store = bench.store
    records = [new_record(owner=f"replica-{i % 20}") for i in range(260)]
    for i in range(20):
        await store.heartbeat(f"replica-{i}", 0)
    for record in records:
        await store.admit(record)
    closed: set[str] = set()
    while orphans := await store.orphans():
        for record in orphans:
            await store.apply([expiry(record)], disown=record.owner)
            closed.add(record.id)
    assert closed == {record.id for record in records}
