"""Knows when this process stood still, and so when a reply may have come that was only read later.

A lease begins when prefill answers. A gateway that was stopped, swapped out or starved in between reads the reply late,
and would trust blocks that are another's by then. Nothing in the reply says when it was sent.
"""

from __future__ import annotations

import asyncio

from common.clock import Clock
from common.tasks import Background

BEAT = 0.1
"""Seconds between two signs of life."""
STILL = 0.5
"""Seconds by which one must be late to be taken for a standstill; shorter ones a connector's margin covers."""


class Pulse:
    """Times are epoch seconds. One that was not started knows of no standstill."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: float | None = None
        self._stood: tuple[float, float] | None = None
        """The latest standstill: from the last sign of life before it, to the first one after it."""
        self._task = Background(self._run)

    async def start(self) -> None:
        self.beat()
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    def beat(self) -> None:
        """One sign of life."""
        now = self._clock.now()
        if self._last is not None and now - self._last > BEAT + STILL:
            self._stood = (self._last, now)
        self._last = now

    def earliest_arrival(self, sent: float) -> float:
        """Since when a reply that has just been read may have lain there, to a request that left at `sent`."""
        if self._last is not None:
            self.beat()
        if self._stood is not None and self._stood[1] > sent:
            return max(sent, self._stood[0])
        return self._clock.now()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self.beat()
