"""How a batch of transitions is chained."""

from __future__ import annotations

from gateway.lifecycle import Event
from gateway.store.steps import steps
from tests.contract.store.samples import Author, new_record


def test_each_step_builds_on_the_one_before_it_of_the_same_request() -> None:
    one, two = Author(new_record()), Author(new_record())
    a, b = one.next(Event.PREFILL_SENT), two.next(Event.DECODE_SENT)
    c, d = one.next(Event.PREFILL_DONE), two.next(Event.COMPLETED)
    assert [s.builds_on for s in steps([a, b, c, d])] == ["", "", a.op_id, b.op_id]


def test_the_first_step_builds_on_the_admission_in_the_same_batch() -> None:
    author = Author(new_record())
    a, b = author.all(Event.PREFILL_SENT, Event.PREFILL_DONE)
    chained = steps([a, b], after={author.record.id: "admit:1"})
    assert [s.builds_on for s in chained] == ["admit:1", a.op_id]


def test_only_an_end_ends() -> None:
    author = Author(new_record())
    chained = steps(author.all(Event.PREFILL_SENT, Event.DECODE_SENT, Event.COMPLETED))
    assert [s.ends for s in chained] == [False, False, True]


def test_times_are_kept_exactly() -> None:
    transition = Author(new_record()).next(Event.PREFILL_SENT)
    (step,) = steps([transition])
    assert float(step.at) == transition.at
