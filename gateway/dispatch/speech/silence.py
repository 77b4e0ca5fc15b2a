"""How long a speech may be silent before somebody is at fault."""

from __future__ import annotations

import asyncio
from typing import Any

from common.engine import Role

BEATS = 5
AHEAD = 50
"""Frames that a Code2Wav may have for one sound: two chunks, as it has them by itself."""
OUT_FOR = 5.0
"""Seconds that an engine may go on being silent which answers no health check any more."""


class Silence:
    """`first` and `idle` in seconds. While text is still coming there is no bound: speech waits for what is said, and
    the text has deadlines of its own, which end both. Behind it `first` bounds the wait for the first frame, and `idle`
    each wait after it. A frame that a Talker tells ends a silence for Code2Wav too, which may need some for one sound;
    but not more than AHEAD. OUT_FOR takes the place of both where an engine is out.

    Only waits count: whoever takes the sound may take its time. And they are counted in beats, BEATS of a bound: while
    this process stands still at most one goes by, and what has come meanwhile is seen before the next does.
    """

    def __init__(self, first: float, idle: float) -> None:
        self._bound = first
        self._first, self._idle = first, idle
        self._text_is_out: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._out: set[Role] = set()
        self._beats = 0
        """That went by since the last frame; -1 where that came in the middle of one, which is not counted then."""
        self._mute = 0
        """That went by since the last sound."""
        self._told = 0
        """Frames since then."""

    @property
    def bound(self) -> float:
        """Seconds that it may last now, once the text is out."""
        return min(self._bound, OUT_FOR) if self._out else self._bound

    @property
    def is_any_out(self) -> bool:
        return bool(self._out)

    @property
    def is_code2wavs(self) -> bool:
        """Whether it is Code2Wav's, though the Talker has not told its last frame."""
        return self._told > AHEAD or self._out == {Role.CODE2WAV}

    def text_is_out(self) -> None:
        """Nothing more will be said. Safe to call again."""
        if not self._text_is_out.done():
            self._text_is_out.set_result(None)

    def heard(self, frames: int = 1) -> None:
        """So many more were told."""
        self._bound, self._beats = self._idle, -1
        self._told += frames
        self._out.discard(Role.TALKER)

    def sounded(self) -> None:
        """Code2Wav is there."""
        self._out.discard(Role.CODE2WAV)

    def is_out(self, role: Role) -> None:
        """The engine of this role answers no health check any more."""
        self._out.add(role)
        self._beats = self._mute = 0

    def starts_anew(self, role: Role) -> None:
        """Another engine of this role begins; a Talker does so at the first frame."""
        self._out.discard(role)
        if role is Role.TALKER:
            self._bound = self._first

    async def until(self, *work: asyncio.Future[Any]) -> bool:
        """Waits until one of them is done; false if it was silent for too long before."""
        self._beats = self._mute = self._told = 0
        while not any(one.done() for one in work):
            if not self._text_is_out.done():
                await asyncio.wait({*work, self._text_is_out}, return_when=asyncio.FIRST_COMPLETED)
                self._beats = self._mute = 0
                continue
            if self._beats == BEATS or (self._mute >= BEATS and self.is_code2wavs):
                return False
            done, _ = await asyncio.wait(work, timeout=self.bound / BEATS, return_when=asyncio.FIRST_COMPLETED)
            self._beats += not done
            self._mute += not done
        return True
