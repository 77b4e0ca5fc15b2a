"""A process that stood still reads late what came early."""

from __future__ import annotations

from gateway.dispatch.pulse import BEAT, STILL, Pulse
from tests.fakes.clock import FakeClock


def test_a_reply_that_may_have_lain_there_counts_from_before_the_standstill() -> None:
    clock = FakeClock()
    pulse = Pulse(clock)
    pulse.beat()
    sent = clock.now()
    clock.advance(BEAT)
    pulse.beat()
    last = clock.now()
    clock.advance(60)
    assert pulse.earliest_arrival(sent) == last
    assert pulse.earliest_arrival(last + 30) == last + 30, "not before it was asked for"
    assert pulse.earliest_arrival(clock.now()) == clock.now(), "what was asked after it came after it"


def test_a_late_beat_is_no_standstill_and_neither_is_no_pulse() -> None:
    clock = FakeClock()
    pulse = Pulse(clock)
    clock.advance(60)
    assert pulse.earliest_arrival(0.0) == clock.now()
    pulse.beat()
    clock.advance(BEAT + STILL)
    pulse.beat()
    assert pulse.earliest_arrival(0.0) == clock.now()
