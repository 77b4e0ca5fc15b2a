"""Policies and the budget: what may follow a failed attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import (
    EngineBroken,
    EngineError,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    HandoffExpired,
    HandoffInvalid,
)
from gateway.dispatch import policy
from gateway.dispatch.budget import WINDOW, RetryBudget
from gateway.dispatch.policy import Part, is_the_engines, may_help, may_pass, part_of


def refused(status: int) -> EngineRefused:
    return EngineRefused("no", engine="p", status=status)


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 499, 501])
def test_what_is_the_requests_fault_is_not_tried_again(status: int) -> None:
    assert not may_help(refused(status))


@pytest.mark.parametrize(
    ("error", "same_engine", "blamed_at_once"),
    [
        (refused(500), False, False),
        (refused(503), False, False),
        (EngineBroken("x", engine="p"), False, False),
        (EngineTimeout("x", engine="p"), False, True),
        (EngineUnreachable("x", engine="p"), True, True),
        (HandoffInvalid("x", engine="p"), False, False),
        (HandoffExpired("x", engine="p"), True, False),
    ],
)
def test_what_may_be_tried_again_and_where(error: EngineError, same_engine: bool, blamed_at_once: bool) -> None:
    assert may_help(error)
    assert (may_pass(error), is_the_engines(error)) == (same_engine, blamed_at_once)


def test_which_part_failed() -> None:
    assert part_of(EngineBroken("x", engine="p"), "p") is Part.PREFILL
    assert part_of(EngineBroken("x", engine="d"), "p") is Part.DECODE
    assert part_of(EngineBroken("x", engine="d"), None) is Part.DECODE
    assert part_of(HandoffInvalid("x", engine="d"), "p") is Part.HANDOFF


def test_retries_are_a_share_of_traffic() -> None:
    budget = RetryBudget(share=0.25, floor=0)
    for _ in range(40):
        budget.earn(0.0)
    assert [budget.spend(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not RetryBudget(share=0, floor=0).spend(0.0)


def test_a_few_retries_are_there_without_traffic_and_come_back_in_time() -> None:
    budget = RetryBudget(share=0.0, floor=2)
    assert [budget.spend(0.0) for _ in range(3)] == [True, True, False]
    assert not budget.spend(WINDOW / 4)
    assert budget.spend(WINDOW)


def test_what_was_earned_long_ago_is_gone() -> None:
    budget = RetryBudget(share=1.0, floor=0)
    for _ in range(100):
        budget.earn(0.0)
    assert not budget.spend(2 * WINDOW)


def test_the_docs_have_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "policies.md"
    table = [line for line in (policy.__doc__ or "").splitlines() if line.startswith("|")]
    assert len(table) == 6
    assert "\n".join(table) in page.read_text()
