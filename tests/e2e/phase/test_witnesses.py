"""Which steps of a record are sure to have had rows of both phases."""

from __future__ import annotations

import pytest

from engines.witness.record import Frame, Row
from tests.e2e.phase.witnesses import spoken_steps


def row(request: str, prefill: bool) -> Row:
    return Row("scalar", request, 5, 4 if prefill else 5, prefill, 1, 0)


EVENTS = {
    "P": row("new", True),
    "D": row("old", False),
    "E": row("older", False),
    "d": Frame("old", 0, (1,)),
    "e": Frame("older", 0, (1,)),
}


@pytest.mark.parametrize(
    ("record", "mixed"),
    [
        ("DPd", [True]),
        ("DEPde", [True]),
        ("PDd", [False]),  # the prompt's row may have had a step of its own before
        ("DdPDd", [False, False]),
        ("DdP", [False]),
        ("PDdDPd", [False, True]),
        ("PP", []),
        ("", []),
    ],
)
def test_only_a_prompt_row_between_a_decode_row_and_its_frame_counts(record: str, mixed: list[bool]) -> None:
    assert [step.mixed for step in spoken_steps([EVENTS[event] for event in record])] == mixed
