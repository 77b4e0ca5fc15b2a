"""How long a speech may be silent before somebody is at fault."""

from __future__ import annotations

import asyncio
from typing import Any

BEATS = 5


class Silence:
    """`first` and `idle` in seconds. While text is still coming there is no bound: speech waits for what is said, and
    the text has deadlines of its own, which end both. Behind it `first` bounds the wait for the first frame, and `idle`
    each wait after it. A frame that a Talker tells ends a silence for Code2Wav too, which may need some for one sound.

    Only waits count: whoever takes the sound may take its time. And they are counted in beats, BEATS of a bound: while
    this process stands still at most one goes by, and what has come meanwhile is seen before the next does.
    """

    def __init__(self, first: float, idle: float) -> None:
        self._bound = first
        self._first, self._idle = first, idle
        self._loop = asyncio.get_running_loop()
        self._text_is_out: asyncio.Future[None] = self._loop.create_future()
        self._beats = 0
        """That went by since the last sound; -1 where that came in the middle of one, which is not counted then."""

    @property
    def bound(self) -> float:
        """Seconds that it may last now, once the text is out."""
        return self._bound

    def text_is_out(self) -> None:
        """Nothing more will be said. Safe to call again."""
        if not self._text_is_out.done():
            self._text_is_out.set_result(None)

    def heard(self) -> None:
        """A frame was told."""
        self._bound, self._beats = self._idle, -1

    def starts_anew(self) -> None:
        """Another Talker begins, at the first frame."""
        self._bound = self._first

    async def until(self, *work: asyncio.Future[Any]) -> bool:
        """Waits until one of them is done; false if it was silent for too long before."""
        self._beats = 0
        while not any(one.done() for one in work):
            if not self._text_is_out.done():
                await asyncio.wait({*work, self._text_is_out}, return_when=asyncio.FIRST_COMPLETED)
                self._beats = 0
                continue
            if self._beats == BEATS:
                return False
            done, _ = await asyncio.wait(work, timeout=self._bound / BEATS, return_when=asyncio.FIRST_COMPLETED)
            self._beats += not done
        return True
