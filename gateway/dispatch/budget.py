"""How many further attempts there may be: a share of recent traffic, so that retries never multiply an overload."""

from __future__ import annotations

WINDOW = 10.0
"""Seconds of traffic that count; also how long `floor` retries must last."""


class RetryBudget:
    """A bucket that each request fills by `share` and each retry empties by one. `floor` retries in WINDOW seconds are
    allowed however little traffic there is. `now` is of one clock that never goes back."""

    def __init__(self, *, share: float, floor: int) -> None:
        self._share = share
        self._floor = floor
        self._earned = 0.0
        self._spare = float(floor)
        self._at: float | None = None

    def earn(self, now: float) -> None:
        """One request began."""
        self._pass(now)
        self._earned += self._share

    def spend(self, now: float) -> bool:
        """Whether one retry may begin; it is counted then."""
        self._pass(now)
        for name in ("_earned", "_spare"):
            if getattr(self, name) >= 1:
                setattr(self, name, getattr(self, name) - 1)
                return True
        return False

    def _pass(self, now: float) -> None:
        """What was earned fades within the window; the floor fills up again in the same time."""
        if self._at is not None:
            share = min(1.0, (now - self._at) / WINDOW)
            self._earned *= 1 - share
            self._spare = min(float(self._floor), self._spare + self._floor * share)
        self._at = now
