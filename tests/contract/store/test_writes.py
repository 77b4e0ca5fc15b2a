"""Admission and transitions: every outcome, and what a repeated or a late write does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.lifecycle import Event, State
from gateway.store.port import Applied, Outcome, Store, Transition
from tests.contract.store.samples import START, Author, expiry, new_record, other, places

OK, DUP, CONFLICT, MISSING = Outcome.OK, Outcome.DUP, Outcome.CONFLICT, Outcome.MISSING


async def test_a_record_comes_back_as_it_was_admitted(store: Store) -> None:
    record = new_record(client_request_id="the client's own: {42}", unsplit=None)
    assert await store.admit(record) == [Applied(OK, 1, State.ACCEPTED)]
    assert await store.get(record.id) == record


async def test_an_unsplit_request_has_no_prefill_engine(store: Store) -> None:
    record = new_record(prefill=None, unsplit="n_above_one", stream=False)
    await store.admit(record)
    assert await store.get(record.id) == record


async def test_admission_and_first_transitions_go_together(store: Store) -> None:
    record = new_record()
    author = Author(record)
    applied = await store.admit(record, transitions=author.all(Event.PREFILL_SENT, Event.PREFILL_DONE))
    assert applied == [
        Applied(OK, 1, State.ACCEPTED),
        Applied(OK, 2, State.PREFILLING),
        Applied(OK, 3, State.PREFILLED),
    ]


async def test_the_same_admission_again_is_a_duplicate(store: Store) -> None:
    record = new_record()
    author = Author(record)
    first = author.next(Event.PREFILL_SENT)
    await store.admit(record, transitions=[first])
    again = await store.admit(record, transitions=[first])
    assert again == [Applied(DUP, 2, State.PREFILLING), Applied(DUP, 2, State.PREFILLING)]
    await store.apply([author.next(Event.DECODE_SENT)])
    assert await store.admit(record) == [Applied(DUP, 3, State.DECODING)], "also when it comes late"


@pytest.mark.parametrize("change", [{"owner": "replica-b"}, {"model": "another"}, {"created_at": START - 1}])
async def test_another_record_under_a_taken_id_is_a_conflict(store: Store, change: dict[str, object]) -> None:
    record = new_record()
    await store.admit(record)
    intruder = replace(record, **change)
    applied = await store.admit(intruder, transitions=[Author(intruder).next(Event.PREFILL_SENT)])
    assert [a.outcome for a in applied] == [CONFLICT, CONFLICT]
    assert await store.get(record.id) == record, "neither the record nor its first transition may touch the other's"


async def test_a_transition_sets_what_it_carries(store: Store) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record, transitions=[author.next(Event.PREFILL_SENT)])
    handoff = {"remote_block_ids": [[1, 2], [3]], "remote_engine_id": "e", "remote_port": 5600, "last": None}
    done = author.next(Event.PREFILL_DONE, handoff=handoff, handoff_expires_at=START + 30.5)
    sent = author.next(Event.DECODE_SENT)
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "details": {"cached": 0.5}}
    ended = author.next(Event.COMPLETED, usage=usage, timings={"first_byte": START + 9.125})
    assert [a.outcome for a in await store.apply([done, sent, ended])] == [OK, OK, OK]
    kept = await store.get(record.id)
    assert kept is not None
    assert (kept.state, kept.version, kept.updated_at) == (State.FINISHED, 5, ended.at)
    assert (kept.handoff, kept.handoff_expires_at, kept.usage) == (handoff, START + 30.5, usage)
    assert kept.created_at == START
    assert kept.timings["first_byte"] == START + 9.125
    assert kept.timings["prefilled"] == done.at
    assert kept.timings["finished"] == ended.at
    assert set(kept.timings) == {"accepted", "prefilling", "prefilled", "decoding", "finished", "first_byte"}


async def test_a_state_is_entered_once(store: Store) -> None:
    """With a concurrent connector prefill is done while decode runs: that does not start decode again."""
    record = new_record()
    author = Author(record)
    sent, decode, done = author.all(Event.PREFILL_SENT, Event.DECODE_SENT, Event.PREFILL_DONE)
    await store.admit(record, transitions=[sent, decode, done])
    kept = await store.get(record.id)
    assert kept is not None
    assert kept.timings["decoding"] == decode.at
    assert kept.updated_at == done.at


@pytest.mark.parametrize("field", ["id", "state", "version", "created_at", "updated_at", "owner", "nonsense"])
async def test_a_transition_may_not_set_what_is_not_its_own(store: Store, field: str) -> None:
    record = new_record()
    await store.admit(record)
    with pytest.raises(ValueError, match=field):
        await store.apply([replace(Author(record).next(Event.PREFILL_SENT), fields={field: "x"})])
    assert await store.get(record.id) == record


async def test_a_repeated_transition_is_a_duplicate_however_late(store: Store) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record)
    steps = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE, Event.DECODE_SENT, Event.COMPLETED)
    for step in steps:
        await store.apply([step])
    before, events = await store.get(record.id), await store.events(record.id)
    for step in steps:
        assert await store.apply([step]) == [Applied(DUP, 5, State.FINISHED)]
    assert await store.get(record.id) == before
    assert await store.events(record.id) == events, "a repeated write leaves no second event"


async def test_a_batch_whose_answer_was_lost_can_be_sent_again_in_part_or_whole(store: Store) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record)
    first, second, third = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE, Event.DECODE_SENT)
    await store.apply([first, second])
    again = await store.apply([first, second, third])
    assert [a.outcome for a in again] == [DUP, DUP, OK]


async def test_a_stale_transition_is_a_conflict(store: Store) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record)
    sent = author.next(Event.PREFILL_SENT)
    await store.apply([sent])
    assert await store.apply([other(sent)]) == [Applied(CONFLICT, 2, State.PREFILLING)]
    ahead = replace(other(sent), expected=7)
    assert await store.apply([ahead]) == [Applied(CONFLICT, 2, State.PREFILLING)]


async def test_a_transition_of_an_unknown_request_is_missing(store: Store) -> None:
    author = Author(new_record())
    steps = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE)
    assert await store.apply(steps) == [Applied(MISSING, 0, None), Applied(MISSING, 0, None)]
    assert await store.get(author.record.id) is None
    assert await store.events(author.record.id) == []


async def test_nothing_of_a_batch_applies_after_a_conflict(store: Store) -> None:
    """The second step expects the very version that the other replica's step made: a match by number alone."""
    record = new_record()
    author = Author(record)
    await store.admit(record)
    sent, done = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE)
    await store.apply([other(sent)])
    assert [a.outcome for a in await store.apply([sent, done])] == [CONFLICT, CONFLICT]
    kept = await store.get(record.id)
    assert kept is not None
    assert (kept.state, kept.version) == (State.PREFILLING, 2)


async def test_an_end_is_final_also_for_later_writes(store: Store) -> None:
    """An owner that was reaped counts on: its next versions match what the reaper wrote, and still nothing moves."""
    record = new_record()
    author = Author(record)
    await store.admit(record)
    await store.apply([expiry(record)])
    closed = await store.get(record.id)
    for event in (Event.PREFILL_SENT, Event.PREFILL_DONE, Event.DECODE_SENT, Event.COMPLETED):
        assert await store.apply([author.next(event)]) == [Applied(CONFLICT, 2, State.EXPIRED)]
    assert await store.get(record.id) == closed


async def test_requests_in_one_batch_do_not_hinder_each_other(store: Store) -> None:
    one, two, gone = new_record(), new_record(), new_record()
    await store.admit(one)
    await store.admit(two)
    moves: list[Transition] = []
    for record in (gone, one, two):
        moves += Author(record).all(Event.PREFILL_SENT, Event.PREFILL_DONE)
    assert [a.outcome for a in await store.apply(moves)] == [MISSING, MISSING, OK, OK, OK, OK]


async def test_one_of_many_racing_writers_wins(store: Store) -> None:
    record = new_record()
    await store.admit(record)
    sent = Author(record).next(Event.PREFILL_SENT)
    answers = await asyncio.gather(*(store.apply([other(sent)]) for _ in range(24)))
    outcomes = [answer[0].outcome for answer in answers]
    assert (outcomes.count(OK), outcomes.count(CONFLICT)) == (1, 23)
    assert len(await store.events(record.id)) == 2


async def test_racing_repeats_of_one_write_step_once(store: Store) -> None:
    record = new_record()
    sent = Author(record).next(Event.PREFILL_SENT)
    answers = await asyncio.gather(*(store.admit(record, transitions=[sent]) for _ in range(24)))
    assert [a[1].outcome for a in answers].count(OK) == 1
    assert {a[1].outcome for a in answers} == {OK, DUP}
    assert {a[0].outcome for a in answers} == {OK, DUP}


async def test_one_of_many_admissions_of_one_id_wins(store: Store) -> None:
    record = new_record()
    rivals = [replace(record, owner=f"replica-{i}") for i in range(12)]
    answers = await asyncio.gather(*(store.admit(rival) for rival in rivals))
    outcomes = [answer[0].outcome for answer in answers]
    assert (outcomes.count(OK), outcomes.count(CONFLICT)) == (1, 11)
    kept = await store.get(record.id)
    assert kept is not None
    assert kept.owner == rivals[outcomes.index(OK)].owner


async def test_an_admission_that_began_is_seen_through(store: Store) -> None:
    """Its caller is cancelled and closes the record next: a write that landed after that would stay open for ever."""
    record = new_record()
    admission = asyncio.ensure_future(store.admit(record, loads=places(record, until=START + 1e9)))
    await asyncio.sleep(0)
    admission.cancel()
    await asyncio.gather(admission, return_exceptions=True)
    assert await store.get(record.id) == record
    end = Author(record).next(Event.CANCELLED)
    assert [a.outcome for a in await store.apply([end])] == [OK]


async def test_nothing_to_do_is_nothing_done(store: Store) -> None:
    assert await store.apply([]) == []
