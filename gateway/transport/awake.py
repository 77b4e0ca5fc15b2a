"""A deadline that a process which stood still has not missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

BEATS = 5


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout`, but counted in beats: while the event loop stands still, because its machine does or because
    somebody holds it up, at most one of BEATS goes by, and what has come meanwhile is seen before the next does.

    Raises TimeoutError.
    """
    async with asyncio.timeout(None) as bound:
        beats = asyncio.create_task(_end(bound, seconds / BEATS))
        try:
            yield
        finally:
            beats.cancel()


async def _end(bound: asyncio.Timeout, beat: float) -> None:
    for _ in range(BEATS):
        await asyncio.sleep(beat)
    bound.reschedule(asyncio.get_running_loop().time())
