"""What decode has fed for one request, kept until it finishes: after a preemption the same rows are fed again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from common.phase import PhaseInfo
from engines.runner.memory import Memory

KEPT = 4
"""Decode steps that can be taken back. With async scheduling two are under way when a token turns out not to count."""


class Moment(NamedTuple):
    """A request just before decode fed `position`: what its model remembered, and where its generator was."""

    position: int
    memory: Memory
    hidden_at: int
    unseen: Memory
    generator: Tensor | None


class Fed:
    """The decode rows of one request by absolute position, each as its slot in the pool, and its last few moments.

    A row of a decode step can be no function of its token: MTP sums codes that are sampled once. So it is kept as it
    was fed.
    """

    __slots__ = ("_moments", "_slots", "hidden_at", "prompt_len", "unseen", "until")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._moments: deque[Moment] = deque(maxlen=KEPT)
        self.prompt_len = -1
        self.until = 0
        """The position behind the last one that decode has fed; 0 before the first."""
        self.hidden_at = -1
        """The position whose hidden state the model saw last."""
        self.unseen: Memory = {}
        """What the model remembered before that."""

    def taken_back(self, phase: PhaseInfo) -> int | None:
        """The first position that was fed and by the request's current state was not; None if there is none, as there
        never is while the prompt stays what it was and all tokens that were fed are known.

        A prompt that was replaced (streaming input folds outputs in) goes on behind what counts of them: a token that
        was fed there since, and then dropped, is no more. Nor are tokens that vLLM does not know any longer.
        """
        known = phase.num_tokens
        if phase.prompt_len != self.prompt_len:
            if self.prompt_len >= 0:
                known = min(known, phase.num_computed)
            self.prompt_len = phase.prompt_len
        return known if self.until > known else None

    def begin(self, moment: Moment) -> None:
        """Decode is about to feed `moment.position`."""
        self._moments.append(moment)

    def keep(self, position: int, slot: int) -> None:
        """Decode has fed `position`, the next one; its row is in `slot`."""
        self._slots[position] = slot
        self.until = position + 1

    def known(self, positions: Iterable[int]) -> list[int]:
        """Those of `positions` that have been fed."""
        return [p for p in positions if p in self._slots]

    def slots(self, positions: Iterable[int]) -> list[int]:
        """Where the rows at `positions` are, all of them known."""
        return [self._slots[p] for p in positions]

    def all_slots(self) -> list[int]:
        return list(self._slots.values())

    def forget(self, start: int) -> tuple[Moment | None, list[int]]:
        """Forgets positions from `start` on, the first of them fed as decode.

        Returns the moment before it, None if that is too long ago, and slots that are free now.
        """
        moment = next((m for m in self._moments if m.position == start), None)
        while self._moments and self._moments[-1].position >= start:
            self._moments.pop()
        free = [self._slots.pop(p) for p in [p for p in self._slots if p >= start]]
        self.until = max(self._slots, default=-1) + 1
        if moment is not None:
            self.hidden_at, self.unseen = moment.hidden_at, moment.unseen
        return moment, free
