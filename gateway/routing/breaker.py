"""A circuit breaker for one engine: pure, told what happened and when.

    closed ──(failures in a row, or half of the last ones)──> open ──(time)──> half-open ──(one success)──> closed
                                                               ^                  │
                                                               └──(one failure)───┘   for twice as long

Half-open lets one request at a time try. What counts as a failure is the caller's to say: an engine that refuses a bad
request is well.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

WINDOW = 20
"""Latest outcomes that are remembered; an engine that fails half of as many is as little use as one that fails all."""
LONGEST = 4
"""An engine that fails each time it is tried is left alone for at most so many times the first pause."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(slots=True)
class Breaker:
    """`failures` in a row open it, for `pause` seconds at first. All times are of one clock that never goes back."""

    failures: int
    pause: float
    _outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _in_a_row: int = 0
    _opened: int = 0
    """How often it opened since it was last closed."""
    _until: float = 0.0
    _trial: str | None = None
    """The request that tries."""

    def state(self, now: float) -> BreakerState:
        if not self._opened:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._until else BreakerState.HALF_OPEN

    def lets_through(self, now: float) -> bool:
        """Whether a request may go to the engine."""
        state = self.state(now)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._trial is None)

    def sent(self, request: str, now: float) -> None:
        """A request goes to the engine."""
        if self._trial is None and self.state(now) is BreakerState.HALF_OPEN:
            self._trial = request

    def ended(self, request: str) -> None:
        """A request is over, whatever came of it: a trial that told nothing must not be the last. Those that were sent
        before the breaker opened, or beside the trial, end none."""
        if request == self._trial:
            self._trial = None

    def succeeded(self, now: float) -> None:
        self._outcomes.append(True)
        self._in_a_row = 0
        if self.state(now) is BreakerState.HALF_OPEN:
            self._close()

    def failed(self, now: float) -> None:
        self._outcomes.append(False)
        self._in_a_row += 1
        state = self.state(now)
        if state is BreakerState.HALF_OPEN or (state is BreakerState.CLOSED and self._is_too_much()):
            self._opened += 1
            self._until = now + self.pause * min(2 ** (self._opened - 1), LONGEST)

    def came_back(self, now: float) -> None:
        """The engine was away and answers its health checks again: no more waiting, but one trial first."""
        if self._opened:
            self._until = min(self._until, now)

    def _is_too_much(self) -> bool:
        whole = len(self._outcomes) == WINDOW
        return self._in_a_row >= self.failures or (whole and 2 * self._outcomes.count(False) >= WINDOW)

    def _close(self) -> None:
        self._opened, self._in_a_row, self._trial = 0, 0, None
        self._outcomes.clear()
