"""What `duet say -o` hears: text for the terminal, sound for a file, and how long it took."""

from __future__ import annotations

import base64
import io
import time
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.http import Refused

SAMPLE_RATE = 24_000
"""Hz of streamed speech: s16le, mono, as OpenAI's."""
SAMPLE_BYTES = 2


@dataclass(slots=True)
class Heard:
    """One answer that is spoken. Times are seconds since it was asked, None for what never came."""

    clock: Callable[[], float] = time.monotonic
    pcm: bytearray = field(default_factory=bytearray)
    first_text: float | None = None
    first_sound: float | None = None
    ended: float = 0.0
    _asked: float = 0.0

    def __post_init__(self) -> None:
        self._asked = self.clock()

    def text(self, deltas: Iterator[dict[str, Any]]) -> Iterator[str]:
        """The pieces of the text as they come; the sound between them is kept."""
        for delta in deltas:
            audio = delta.get("audio") or {}
            if piece := audio.get("transcript") or delta.get("content"):
                self.first_text = self._now() if self.first_text is None else self.first_text
                yield piece
            if data := audio.get("data"):
                self.first_sound = self._now() if self.first_sound is None else self.first_sound
                self.pcm += base64.b64decode(data)
        self.ended = self._now()

    @property
    def seconds(self) -> float:
        """Of sound."""
        return len(self.pcm) / SAMPLE_BYTES / SAMPLE_RATE

    def wav(self) -> bytes:
        """A WAV file's bytes. Raises Refused if nothing was said."""
        if not self.pcm:
            raise Refused("the answer has no speech: nothing was said")
        held = io.BytesIO()
        with wave.open(held, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(SAMPLE_BYTES)
            file.setframerate(SAMPLE_RATE)
            file.writeframes(self.pcm)
        return held.getvalue()

    def report(self, path: Path) -> str:
        """One line. The real-time factor is how long it took by how long it sounds: below 1 it can be played as it
        comes."""
        began = f"first text {_ms(self.first_text)}, first sound {_ms(self.first_sound)}"
        factor = self.ended / self.seconds
        return f"{began}, {self.seconds:.2f} s of speech in {self.ended:.2f} s (real-time factor {factor:.2f}): {path}"

    def _now(self) -> float:
        return self.clock() - self._asked


def _ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:.0f} ms"
