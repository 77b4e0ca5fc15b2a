"""Time, injected: so that a test can move it and nothing else has to wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch; compared between replicas, never used for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back; for durations."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
