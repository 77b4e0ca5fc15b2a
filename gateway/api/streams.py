"""Event streams that are open: how many there may be, how often they look, and when all of them end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse

from common.errors import DuetError, StoreUnavailable

POLL = 0.25
"""Seconds between two looks for what is new."""
MOST = 64
"""Streams of one replica at a time: each looks into Redis four times a second."""


class TooManyStreams(DuetError):
    status = 503
    type = "service_unavailable"
    code = "too_many_event_streams"
    retry_after = 5.0


class Streams:
    """How many are open, and whether they are to end: a server that goes down does not wait for its watchers."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = asyncio.Event()

    async def pause(self) -> bool:
        """Waits until it is time to look again; false if it is over."""
        try:
            async with asyncio.timeout(POLL):
                await self.closing.wait()
        except TimeoutError:
            return True
        return False

    def answer(self, events: AsyncIterator[bytes]) -> StreamingResponse:
        """Raises TooManyStreams."""
        if self.open >= MOST:
            raise TooManyStreams(f"this gateway serves {self.open} event streams already; expected at most {MOST}")
        return StreamingResponse(
            self._counted(events),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            async for event in events:
                yield event
        except StoreUnavailable:
            return  # the client comes back and goes on from where it was
        finally:
            self.open -= 1
