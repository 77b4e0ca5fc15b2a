"""Waiting for something, unless what it would come from has ended.

vLLM tells nobody who waits: `AsyncLLM.shutdown` cancels the task that hands outputs out, and a `generate` that waits
for one then waits for ever; and who waits for the Thinker has asked the engine nothing yet. So it is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from common.errors import DuetError
from common.tasks import end
from engines.talker.errors import SpeechFailed

T = TypeVar("T")
EVERY = 0.1
"""Seconds between looks."""


class Downfall:
    """Of one engine, for all who wait for something of it: one look serves them all."""

    def __init__(self, engine: Any) -> None:
        """`engine` is vLLM's client; of it, `errored` is read, which is true of one that was shut down as well."""
        self._engine = engine
        self._coming: asyncio.Task[DuetError] | None = None

    def coming(self) -> asyncio.Future[DuetError]:
        """Done once the engine has ended; its result says so. Of the loop that serves."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._look())
        return self._coming

    def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()

    async def _look(self) -> DuetError:
        while not self._engine.errored:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(EVERY)
        return SpeechFailed("the Talker's engine has ended")


async def unless(work: Awaitable[T], *ends: asyncio.Future[DuetError]) -> T:
    """What `work` comes to. Raises what one of `ends` comes to before that; `work` is ended then."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({working, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise next(ended.result() for ended in ends if ended.done()).with_traceback(None)  # others raise it as well
    finally:
        await end(working)
