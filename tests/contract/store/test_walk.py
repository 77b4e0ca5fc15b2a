"""Any life that the table allows, written to every store: the stores agree with the table, and with each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import IllegalTransition
from gateway.lifecycle import TABLE, Event, State
from gateway.store.port import Applied, Outcome, Store, Transition
from tests.contract.store.conftest import on_fakeredis, on_memory, on_redis
from tests.contract.store.samples import Author, new_record, other

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

events = st.lists(st.sampled_from(list(Event)), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
handoffs = st.none() | st.dictionaries(st.text(max_size=8), json_values, max_size=4)


@given(walk=events)
@quick
async def test_a_walk_leaves_what_the_table_says(store: Store, walk: list[Event]) -> None:
    record = new_record()
    author = Author(record)
    await store.admit(record)
    written: list[tuple[Event, State]] = []
    for event in walk:
        try:
            transition = author.next(event)
        except IllegalTransition:
            assert (author.state, event) not in TABLE
            continue
        assert await store.apply([transition]) == [Applied(Outcome.OK, author.version, author.state)]
        written.append((event, author.state))
    kept = await store.get(record.id)
    assert kept is not None
    assert (kept.state, kept.version) == (author.state, 1 + len(written))
    rows = await store.events(record.id)
    assert [(row.event, row.state) for row in rows] == [("admitted", State.ACCEPTED), *written]
    assert set(kept.timings) == {State.ACCEPTED.value, *(state.value for _, state in written)}


@dataclass(frozen=True, slots=True)
class Move:
    """One write of a script: an event of the life, and how it is written."""

    event: Event
    how: str
    handoff: Any


moves = st.lists(
    st.builds(
        Move, st.sampled_from(list(Event)), st.sampled_from(["once", "twice", "rival", "late", "lost"]), handoffs
    ),
    max_size=10,
)


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[list[Store]]:
    async with AsyncExitStack() as stack:
        benches = [await stack.enter_async_context(b) for b in (on_memory(), on_fakeredis(), on_redis(redis_url))]
        yield [bench.store for bench in benches]


@given(script=moves)
@quick
async def test_all_stores_answer_alike(stores: list[Store], script: list[Move]) -> None:
    """Repeats, rivals, late and lost writes, in any order: same outcomes, same records, same events."""
    record = new_record()
    author = Author(record)
    batches: list[list[Transition]] = []
    for move in script:
        try:
            transition = author.next(move.event, handoff=move.handoff)
        except IllegalTransition:
            continue
        batches += _written(move.how, transition, batches)
    for store in stores:
        await store.admit(record)
    for batch in batches:
        answers = [await store.apply(batch, disown=record.owner) for store in stores]
        assert answers[0] == answers[1] == answers[2]
    kept = [await store.get(record.id) for store in stores]
    assert kept[0] == kept[1] == kept[2]
    told = [[replace(row, id="") for row in await store.events(record.id)] for store in stores]
    assert told[0] == told[1] == told[2]


def _written(how: str, transition: Transition, before: list[list[Transition]]) -> list[list[Transition]]:
    earlier = before[-1] if before else []
    return {
        "once": [[transition]],
        "twice": [[transition], [transition]],
        "rival": [[other(transition)], [transition]],
        "late": [[transition], earlier],
        "lost": [],
    }[how]
