"""Filters, scorers, picker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from common.engine import Engine, Role
from common.errors import NoRoutableEngine
from gateway.routing import Candidate, Picker, Wish


def candidate(
    port: int,
    role: Role = Role.PREFILL,
    *,
    up: bool = True,
    model: str = "m",
    load: int = 0,
    draining: bool = False,
) -> Candidate:
    return Candidate(Engine.at(f"http://127.0.0.1:{port}", role), up, {model: 2048}, load, draining)


PREFILL = Wish(Role.PREFILL, "m")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (candidate(2, Role.DECODE), "has this role"),
        (candidate(2, model="n"), "serves this model"),
        (candidate(2, up=False), "answers its health checks"),
        (candidate(2, draining=True), "is not draining"),
    ],
)
def test_a_candidate_that_will_not_do_is_never_picked(other: Candidate, why: str) -> None:
    good = candidate(1)
    picker = Picker()
    assert {picker.pick([other, good], PREFILL).engine.id for _ in range(4)} == {good.engine.id}
    with pytest.raises(NoRoutableEngine, match=rf"no prefill engine for model 'm' {why}.*127.0.0.1:2"):
        picker.pick([other], PREFILL)


def test_nobody_at_all() -> None:
    with pytest.raises(NoRoutableEngine, match="engines looked at: none"):
        Picker().pick([], PREFILL)


def test_an_engine_of_both_roles_never_hands_over_to_itself() -> None:
    one, two = candidate(1, Role.BOTH), candidate(2, Role.BOTH, load=9)
    picked = Picker().pick([one, two], Wish(Role.DECODE, "m", other_than=one.engine.id))
    assert picked is two


def test_the_emptiest_wins_and_equals_take_turns_on_each_leg() -> None:
    busy, a, b = candidate(1, load=3), candidate(2, load=1), candidate(3, load=1)
    decode = [candidate(4, Role.DECODE), candidate(5, Role.DECODE)]
    picker = Picker()
    seen: Counter[str] = Counter()
    for _ in range(10):  # both legs of a request, as the coordinator picks them
        seen[picker.pick([busy, a, b], PREFILL).engine.id] += 1
        seen[picker.pick(decode, Wish(Role.DECODE, "m")).engine.id] += 1
    assert seen == {a.engine.id: 5, b.engine.id: 5, decode[0].engine.id: 5, decode[1].engine.id: 5}


def test_an_engine_that_failed_of_late_is_better_than_none_and_worse_than_any_other() -> None:
    failed, good = replace(candidate(1), trusted=False), candidate(2, load=9)
    assert Picker().pick([failed, good], PREFILL) is good
    assert Picker().pick([failed], PREFILL) is failed
    tried = Wish(Role.PREFILL, "m", tried=frozenset({good.engine.id}))
    assert Picker().pick([failed, good], tried) is failed
    with pytest.raises(NoRoutableEngine, match="is left that has not failed at this request"):
        Picker().pick([good], tried)
