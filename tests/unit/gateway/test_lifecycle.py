"""The table: what follows what, and that nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import IllegalTransition
from gateway.lifecycle import LIVE, TABLE, TERMINAL, Effect, Event, State, step
from gateway.lifecycle.diagram import mermaid

DOCS = Path(__file__).parents[3] / "docs" / "lifecycle.md"
ENDS = {Event.FAILED: State.FAILED, Event.CANCELLED: State.CANCELLED, Event.EXPIRED: State.EXPIRED}


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([Event.PREFILL_SENT, Event.PREFILL_DONE, Event.DECODE_SENT, Event.COMPLETED], State.FINISHED),
        ([Event.PREFILL_SENT, Event.DECODE_SENT, Event.PREFILL_DONE, Event.COMPLETED], State.FINISHED),
        ([Event.DECODE_SENT, Event.COMPLETED], State.FINISHED),
    ],
    ids=["sequential", "concurrent", "unsplit"],
)
def test_the_three_ways_through(events: list[Event], end: State) -> None:
    state = State.ACCEPTED
    for event in events:
        state, _ = step(state, event)
    assert state is end


@pytest.mark.parametrize("state", sorted(LIVE))
@pytest.mark.parametrize("event", sorted(ENDS))
def test_every_live_state_can_end_badly(state: State, event: Event) -> None:
    to, effects = step(state, event)
    assert to is ENDS[event]
    assert {Effect.FREE_PREFILL, Effect.FREE_DECODE} <= set(effects), "both engines' places must be freed"
    assert (Effect.ABANDON_HANDOFF in effects) == (state in (State.PREFILLED, State.DECODING))


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("event", sorted(Event))
def test_nothing_follows_an_end(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition, match=f"{event.value} is not possible in state {state.value}"):
        step(state, event)


@given(st.lists(st.sampled_from(list(Event)), max_size=12))
def test_any_walk_stays_on_the_table(events: list[Event]) -> None:
    """Whatever comes, in whatever order: each place is freed at most once, and an end is final."""
    state, effects = State.ACCEPTED, []
    for event in events:
        known = (state, event) in TABLE
        try:
            state, does = step(state, event)
        except IllegalTransition:
            assert not known
            continue
        assert known
        effects += does
    if state in TERMINAL:
        assert Effect.FREE_DECODE in effects
        assert Effect.FREE_PREFILL in effects
    if state is State.PREFILLED:
        assert effects.count(Effect.FREE_PREFILL) == 1


def test_every_state_can_be_reached_and_every_live_one_can_finish() -> None:
    reached = {State.ACCEPTED}
    for _ in State:
        reached |= {to for (state, _), (to, _) in TABLE.items() if state in reached}
    assert reached == set(State)


def test_the_docs_show_the_table() -> None:
    assert f"```mermaid\n{mermaid()}\n```" in DOCS.read_text(), (
        "docs/lifecycle.md is out of date: put the output of `python -m gateway.lifecycle.diagram` in its mermaid block"
    )
