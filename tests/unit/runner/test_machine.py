"""Many requests under a scheduler that does anything a scheduler may do, checked row by row.

Two judges: `common/phase.py` says what phase each hook was told; `Alone` says, for each request by itself and with no
notion of rows or phases, what every position must be fed and what every frame must say. A frame is said once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from common.phase import PhaseInfo
from engines.runner.fed import KEPT
from tests.unit.runner.stage import TOKENS as ROOM
from tests.unit.runner.stage import Request, Stage
from tests.unit.runner.talker import Alone, Talker
from tests.unit.runner.test_contract import fed

STEPS = 2000


@dataclass
class Life:
    """A request as the scheduler knows it, and the same request by itself."""

    request: Request
    computed: int = 0
    alone: Alone = field(default_factory=Alone)
    waits: bool = False
    """Its newest id is sampled and not yet spoken by `alone`."""
    folded: bool = False
    """Its prompt was replaced and has not run since: vLLM preempts only what runs."""
    changed: bool = False
    """Ids of it were dropped, and it has not run since."""
    moments: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Positions before which the runner remembers it."""

    def speak(self) -> None:
        self.moments.append(len(self.alone.rows))
        self.alone.speak(self.request.output[-1])

    def can_go_back_to(self, position: int) -> bool:
        return position >= len(self.alone.rows) or position in self.moments

    def go_back_to(self, position: int) -> None:
        self.waits, self.changed = False, True
        if position < len(self.alone.rows):
            self.alone.take_back(position)
        while self.moments and self.moments[-1] >= position:
            self.moments.pop()


class Scheduler(RuleBasedStateMachine):
    """Chunks, arrivals, preemptions, reorders, tokens taken back, folds, ends."""

    steps: ClassVar[int] = 0

    @initialize(batched=st.booleans())
    def begin(self, batched: bool) -> None:
        self.stage = Stage(model=Talker(batched=batched))
        self.lives: dict[str, Life] = {}
        self.born = 0

    @precondition(lambda self: len(self.lives) < 8)
    @rule(ids=st.lists(st.integers(0, 96), min_size=1, max_size=12), cached=st.integers(0, 11))
    def arrive(self, ids: list[int], cached: int) -> None:
        """`cached` tokens of its prompt are there already, never all."""
        self.born += 1
        name = f"r{self.born % 12}"  # names come again
        if name in self.lives:
            return
        life = self.lives[name] = Life(Request(ids), computed=min(cached, len(ids) - 1))
        life.alone.prompt(ids)
        self.stage.requests[name] = life.request

    @precondition(lambda self: self.lives)
    @rule(seed=st.integers(0, 1 << 16), count=st.integers(1, 4))
    def steps_of_any_kind(self, seed: int, count: int) -> None:
        """`count` steps, each with some of the requests in any order, each of them with a chunk of what it has left."""
        rng = Random(seed)
        for _ in range(count):
            self._step(rng)

    def _step(self, rng: Random) -> None:
        names = rng.sample(sorted(self.lives), rng.randint(1, len(self.lives)))
        rows, room = [], ROOM
        for name in names:
            life = self.lives[name]
            left = _known(life) - life.computed
            span = min(left, room, rng.choice((1, 1, rng.randint(1, left), left)))
            rows.append((name, life.computed, span))
            room -= span
            if life.waits and span == left:
                life.speak()
        self._run(rows)
        for name, computed, span in rows:
            life = self.lives[name]
            life.computed, life.folded, life.changed = computed + span, False, False
            if life.computed == _known(life):  # whole: it samples
                life.request.output.append(rng.randint(100, 200))
                life.waits = True

    @precondition(lambda self: self.lives)
    @rule(which=st.integers(0, 7), kept=st.integers(0, 20))
    def preempt(self, which: int, kept: int) -> None:
        """Its KV is gone, but for what a prefix cache kept."""
        life = self.lives[self._pick(which, self.lives)]
        if life.folded:
            return
        life.computed = min(kept, life.computed, _known(life) - 1)

    @precondition(lambda self: self.lives)
    @rule(which=st.integers(0, 7), count=st.integers(1, KEPT + 1), kept=st.integers(0, 6), goes_on=st.booleans())
    def take_back(self, which: int, count: int, kept: int, goes_on: bool) -> None:
        """The newest ids do not count, though all but the last may have been fed; others are sampled in their place.

        It goes on where they began, or starts again.
        """
        life = self.lives[self._pick(which, self.lives)]
        known = _known(life) - min(count, len(life.request.output))
        if life.changed or known == _known(life) or not life.can_go_back_to(known):
            return
        del life.request.output[known - len(life.request.ids) :]
        life.go_back_to(known)
        life.computed = min(life.computed if goes_on else kept, known - 1)

    @precondition(lambda self: any(life.waits for life in self.lives.values()))
    @rule(
        which=st.integers(0, 7),
        dropped=st.integers(0, KEPT),
        more=st.lists(st.integers(0, 96), min_size=1, max_size=5),
    )
    def fold(self, which: int, dropped: int, more: list[int]) -> None:
        """Streaming input: what was said joins the prompt, but for the id that nobody fed, and `dropped` before it that
        were fed; new ids follow."""
        able = [n for n, life in self.lives.items() if life.waits and life.computed == _known(life) - 1]
        if not able:
            return
        name = self._pick(which, able)
        life = self.lives[name]
        counts = life.computed - min(dropped, len(life.request.output) - 1)
        if life.changed or not life.can_go_back_to(counts):
            return
        said = life.request.output[: counts - len(life.request.ids)]
        life.request = Request([*life.request.ids, *said, *more])
        life.go_back_to(counts)
        life.computed, life.folded = counts, True
        life.alone.prompt(more)
        self.stage.requests[name] = life.request

    @precondition(lambda self: self.lives)
    @rule(which=st.integers(0, 7))
    def end(self, which: int) -> None:
        name = self._pick(which, self.lives)
        del self.lives[name]
        self.stage.finish(name)
        kept = self.stage.runner.kept
        assert name not in kept.fed
        assert name not in kept.memories
        assert kept.pool.held == sum(len(fed.all_slots()) for fed in kept.fed.values())

    def _pick(self, which: int, names: Iterable[str]) -> str:
        found = sorted(names)
        return found[which % len(found)]

    def _run(self, rows: list[tuple[str, int, int]]) -> None:
        Scheduler.steps += 1
        model = self.stage.model
        model.calls.clear()
        model.mtp_batches.clear()
        said = {name: self._spoken(name) for name, _, _ in rows}
        ran = self.stage.step(*rows)
        for name, computed, span in rows:
            life = self.lives[name]
            assert fed(ran, name) == life.alone.rows[computed : computed + span]
            self._judge(name, computed, span)
            if self._spoken(name) > said[name]:  # MTP moved its state: this is the newest frame
                assert self.stage.codes(name) == life.alone.codes[computed + span - 1]
            assert self._spoken(name) == len(life.alone.codes)
        assert [c.request for c in model.calls] == [
            name for name, _, _ in rows for c in model.calls if c.request == name
        ], "hooks follow the batch"

    def _judge(self, name: str, computed: int, span: int) -> None:
        """What hooks were told of one row, against the contract."""
        life = self.lives[name]
        whole = PhaseInfo.of(len(life.request.ids), computed, span, _known(life))
        for call in self.stage.model.calls:
            if call.request != name:
                continue
            part = PhaseInfo.of(whole.prompt_len, call.computed, len(call.ids), whole.num_tokens)
            assert (call.prompt_len, call.is_prefill) == (whole.prompt_len, part.is_prefill)
            assert computed <= call.computed < computed + span
            if call.hook == "preprocess_decode_batch":
                assert part.batched_decode_eligible
            if not call.is_prefill:
                assert part.mtp_eligible, "a talker's decode row is one new token"
            if whole.mtp_eligible or whole.end <= whole.prompt_len:
                assert part == whole, "a row of one kind is not cut"

    def _spoken(self, name: str) -> int:
        return self.stage.runner.model_intermediate_buffer.get(name, {}).get("steps", 0)


def _known(life: Life) -> int:
    return len(life.request.ids) + len(life.request.output)


@pytest.mark.timeout(600)  # seconds, on a busy machine
def test_whatever_a_scheduler_does() -> None:
    Scheduler.steps = 0
    run_state_machine_as_test(
        Scheduler,
        settings=settings(
            max_examples=250,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    assert Scheduler.steps >= STEPS
