"""Background tasks: one that is started and stopped, and ending any of them for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
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


class Lasting:
    """What a loop does each time, as a context: an error in it is logged and does not end the loop. It is logged again
    once it is another one, or has been away. A cancellation does end it, also one that a library took for its own:
    where a process stands still now and then, each could meet that library's timeout.

    For what nobody foresaw: a loop catches what it expects itself.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` names it in the log: "a look at the orders"."""
        self._log = log
        self._what = what
        self._last: str | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error
        fault = None if error is None else f"{type(error).__name__}: {error}"
        if fault is not None and fault != self._last:
            self._log.error("%s failed by a fault of the gateway, and is repeated", self._what, exc_info=error)
        self._last = fault
        return True
