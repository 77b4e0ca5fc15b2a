"""When to decode which frames with how much context, and which of the samples to keep. Pure: no model, no clock.

A chunk is decoded with `left` frames before it. What it adds is cut so that it begins where the chunk before it ended,
which is `tail` samples before the frames' own border:

    chunk 1   frames 0..4           samples [0, 4*1920 - 555)
    chunk 2   frames 0..29, left 4  samples [4*1920 - 555, 29*1920 - 555)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import ConfigurationError
from engines.code2wav.errors import CodesInvalid
from engines.code2wav.geometry import Geometry

Codes = NDArray[np.int64]
"""`[frames, groups]`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Frames: how many the first chunk waits for, how many each after it, and how many before it are decoded again.

    4 frames are 320 ms: the first sound comes soon. 25 are 2 s: later ones are decoded with little repeated work.
    """

    first: int = 4
    chunk: int = 25
    left: int = 25

    def __post_init__(self) -> None:
        for name in ("first", "chunk", "left"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"chunk plan: {name} is {getattr(self, name)}, expected 1 or more")

    def check(self, geometry: Geometry) -> None:
        """Raises ConfigurationError if frames before a chunk do not reach back to where the chunk before it ended."""
        needed = -(-geometry.tail // geometry.samples_per_frame)
        if self.left < needed:
            raise ConfigurationError(
                f"chunk plan: left is {self.left}, expected {needed} or more: the last {geometry.tail} samples wait, "
                f"and a frame has {geometry.samples_per_frame}"
            )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Decode `codes`; keep the samples from `begin` on."""

    codes: Codes
    begin: int


class Chunker:
    """Takes frames one by one. `from_sample` is where the audio begins: earlier samples have been played already."""

    def __init__(self, geometry: Geometry, plan: Plan, from_sample: int = 0) -> None:
        self._geometry = geometry
        self._plan = plan
        self._from_sample = from_sample
        self._skip = geometry.frames(from_sample)
        self._context: deque[Codes] = deque(maxlen=plan.left)
        self._pending: list[Codes] = []
        self._done = 0
        self._size = plan.first

    def push(self, frame: Codes) -> Chunk | None:
        """One frame, `[groups]`; a chunk if there is enough for one. Raises CodesInvalid for a code that is not in the
        codebook: a mark is no sound, and whoever counts frames would miss its samples."""
        if frame.min() < 0 or frame.max() >= self._geometry.codebook:
            odd = next(int(code) for code in frame if not 0 <= code < self._geometry.codebook)
            at = self._done + len(self._pending)
            raise CodesInvalid(f"frame {at} has the code {odd}: expected 0 to {self._geometry.codebook - 1}")
        if self._done < self._skip:
            self._context.append(frame)
            self._done += 1
            return None
        self._pending.append(frame)
        return self._cut() if len(self._pending) == self._size else None

    def finish(self) -> Chunk | None:
        """What is left when no frame follows."""
        return self._cut() if self._pending else None

    def _cut(self) -> Chunk:
        left, geometry = len(self._context), self._geometry
        begin = geometry.samples(left) if self._done else 0
        begin += max(0, self._from_sample - geometry.samples(self._done))
        chunk = Chunk(np.stack([*self._context, *self._pending]), begin)
        self._context.extend(self._pending)
        self._done += len(self._pending)
        self._pending.clear()
        self._size = self._plan.chunk
        return chunk
