"""Time that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """A `common.clock.Clock`. Both of its times move together, and only by `advance`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Raises ValueError for a step back: a test that wants skewed clocks makes two."""
        if seconds < 0:
            raise ValueError(f"advance({seconds:g}): expected seconds >= 0")
        self._now += seconds
        self._monotonic += seconds
