"""The table: what follows what, and that nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import IllegalTransition
from gateway.lifecycle import (
    LIVE,
    SPEECH,
    SPEECH_EVENTS,
    TABLE,
    TERMINAL,
    Effect,
    Event,
    Speech,
    State,
    speech_step,
    step,
)
from gateway.lifecycle.diagram import mermaid, speech_mermaid

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
    """Whatever comes, in whatever order: each place of an attempt is freed at most once, and an end is final."""
    state, effects = State.ACCEPTED, []
    for event in events:
        known = (state, event) in TABLE
        try:
            state, does = step(state, event)
        except IllegalTransition:
            assert not known
            continue
        assert known
        effects = [] if event is Event.RETRIED else [*effects, *does]
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


def test_the_docs_show_the_tables() -> None:
    for drawn in (mermaid(), speech_mermaid()):
        assert f"```mermaid\n{drawn}\n```" in DOCS.read_text(), (
            "docs/lifecycle.md is out of date: put what `python -m gateway.lifecycle.diagram` prints into its blocks"
        )


def test_speech_from_its_first_sound_to_its_end() -> None:
    speech = Speech.WAITING
    for event in (Event.DECODE_SENT, Event.SPEECH_STARTED, Event.SPEECH_RESUMED, Event.SPEECH_DONE, Event.COMPLETED):
        speech = speech_step(speech, event)
    assert speech is Speech.DONE


@pytest.mark.parametrize("event", sorted(set(Event) - SPEECH_EVENTS))
def test_an_answer_without_sound_stays_without(event: Event) -> None:
    assert speech_step(Speech.OFF, event) is Speech.OFF


@given(st.lists(st.sampled_from(list(Event)), max_size=12))
def test_any_walk_of_a_spoken_answer_ends_with_its_speech_ended(events: list[Event]) -> None:
    """An end is final for both, no request completes while it is spoken, and only a further attempt speaks anew."""
    state, speech = State.ACCEPTED, Speech.WAITING
    for event in events:
        try:
            to, _ = step(state, event)
            after = speech_step(speech, event)
        except IllegalTransition:
            assert (state, event) not in TABLE or event in SPEECH_EVENTS or event is Event.COMPLETED
            continue
        if after is not speech:
            assert SPEECH[speech, event] is after
            assert (speech in (Speech.DONE, Speech.FAILED)) <= (event is Event.RETRIED)
        state, speech = to, after
    assert (state in TERMINAL) <= (speech in (Speech.DONE, Speech.FAILED))
