"""Background tasks: one that is started and stopped, and ending any of them for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

AGAIN_AFTER = 0.5
"""Seconds that a cancelled task gets before it is cancelled again."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks until they are done, and takes note of what they raised.

    Once is not enough: a cancellation that meets a library's own timeout at the wrong moment comes out of it as that
    timeout, and a loop that catches it goes on for ever.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_AFTER)
    await asyncio.gather(*tasks, return_exceptions=True)


class Background:
    """One task that goes on beside everything else, from `start` to `stop`; it may then be started again."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the work, in the running event loop."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends it and waits for that. Safe to call again, and before `start`."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
