"""The endpoint's ear: follows the Thinker's streams in the server's event loop, to know when to start and when to stop.

It pulls what the engine's own inbox pulls. Without it a Thinker that dies would leave its Talker waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from common.channel import Puller
from common.errors import DuetError
from engines.talker.conditioning import Conditioning
from engines.talker.errors import ThinkerLost
from engines.talker.feed import Feed
from engines.talker.inbox import pull
from engines.talker.script import Marks


class Thinker:
    """One request's. An async context: its pulls end with it."""

    def __init__(self, puller: Puller, streams: Sequence[str], marks: Marks) -> None:
        self.feed = Feed(Conditioning(len(streams)), marks)
        self._puller = puller
        self._streams = streams
        self._changed = asyncio.Event()
        self._pulls: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Thinker:
        conditioning = self.feed.conditioning
        self._pulls = [
            asyncio.create_task(pull(self._puller, text, at, conditioning, self._changed.set))
            for at, text in enumerate(self._streams)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._pulls:
            task.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)

    async def until(self, done: Callable[[], bool]) -> None:
        """Returns when `done`. Raises ThinkerLost if it cannot be any more, or what the prompt is refused with."""
        while not done():
            if why := self.feed.lost():
                raise self.feed.refusal or ThinkerLost(why)
            self._changed.clear()
            await self._changed.wait()

    async def until_lost(self) -> DuetError:
        """Returns why nothing more will come; never if all came."""
        while not (why := self.feed.lost()):
            self._changed.clear()
            await self._changed.wait()
        return ThinkerLost(why)
