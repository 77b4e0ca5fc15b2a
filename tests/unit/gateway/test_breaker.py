"""The breaker: what opens it, what closes it, and that it does not flap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing import Breaker, BreakerState
from gateway.routing.breaker import LONGEST, WINDOW

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def opened(*, at: float = 0.0) -> Breaker:
    breaker = Breaker(3, 2.0)
    for _ in range(3):
        breaker.failed(at)
    return breaker


def test_failures_in_a_row_open_it_and_fewer_do_not() -> None:
    breaker = Breaker(3, 2.0)
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        outcome(0.0)
        assert breaker.state(0.0) is CLOSED
    breaker.failed(0.0)
    assert breaker.state(0.0) is OPEN
    assert not breaker.lets_through(1.9)


def test_an_engine_that_fails_every_other_time_is_left_alone_too() -> None:
    breaker = Breaker(3, 2.0)
    for _ in range(WINDOW // 2):
        assert breaker.state(0.0) is CLOSED
        breaker.succeeded(0.0)
        breaker.failed(0.0)
    assert breaker.state(0.0) is OPEN


def test_half_open_lets_one_try_and_a_success_closes_it() -> None:
    breaker = opened()
    assert breaker.state(2.0) is HALF_OPEN
    assert breaker.lets_through(2.0)
    breaker.sent("r1", 2.0)
    assert not breaker.lets_through(2.0), "one at a time"
    breaker.succeeded(2.5)
    assert breaker.state(2.5) is CLOSED
    breaker.failed(2.6)
    assert breaker.state(2.6) is CLOSED, "what was before it closed is forgotten"


def test_a_failed_trial_waits_longer_each_time_up_to_a_bound() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(5):
        start = now
        while not breaker.lets_through(now):
            now += 0.5
        waits.append(now - start)
        breaker.sent("r1", now)
        breaker.failed(now)
        breaker.ended("r1")
    assert waits == [2.0, 4.0, 8.0, 8.0, 8.0]
    assert max(waits) == 2.0 * LONGEST


def test_a_trial_that_told_nothing_makes_room_for_the_next() -> None:
    breaker = opened()
    breaker.sent("r1", 2.0)
    breaker.ended("r1")
    assert breaker.lets_through(2.0)


def test_only_the_trials_own_end_makes_room_for_the_next() -> None:
    """Requests from before the breaker opened end meanwhile, well or not: the trial still runs."""
    breaker = opened()
    breaker.sent("trial", 2.0)
    breaker.ended("older")
    assert not breaker.lets_through(2.0)
    breaker.failed(2.1)  # an older one again: open for longer, and then half-open
    breaker.ended("older")
    assert not breaker.lets_through(6.2), "one at a time, also after the next pause"
    breaker.sent("beside", 6.2)  # where every engine is out, requests go all the same
    breaker.ended("beside")
    assert not breaker.lets_through(6.2)
    breaker.ended("trial")
    assert breaker.lets_through(6.2)


def test_an_engine_that_was_away_and_is_back_is_tried_at_once() -> None:
    breaker = opened()
    breaker.came_back(0.1)
    assert breaker.state(0.1) is HALF_OPEN
    fresh = Breaker(3, 2.0)
    fresh.came_back(0.0)
    assert fresh.state(0.0) is CLOSED


@given(st.lists(st.sampled_from(["sent", "succeeded", "failed", "ended", "wait"]), max_size=60))
def test_whatever_happens_it_lets_somebody_through_in_the_end(steps: list[str]) -> None:
    breaker, now = Breaker(3, 2.0), 0.0
    for step in steps:
        if step == "wait":
            now += 1.0
        elif step == "ended":
            breaker.ended("r1")
        elif step == "sent":
            breaker.sent("r1", now)
        else:
            getattr(breaker, step)(now)
    breaker.ended("r1")
    assert breaker.lets_through(now + 2.0 * LONGEST)
