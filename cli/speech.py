"""What `duet say -o` hears: text for the terminal, sound for a file, and how long it took."""

from __future__ import annotations

import base64
import io
import time
import wave
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.http import Refused
from common.errors import ConfigurationError

SAMPLE_RATE = 24_000
"""Hz of streamed speech: s16le, mono, as OpenAI's."""
SAMPLE_BYTES = 2


def expect_wav(path: Path) -> None:
    """Raises ConfigurationError for a name that promises another format than the one that is written."""
    if path.suffix.lower() not in ("", ".wav"):
        raise ConfigurationError(f"-o {str(path)!r}: expected a name that ends in .wav, or has no ending")


def expect_spoken(flags: Mapping[str, object]) -> None:
    """Flags of speech, None for what was not given. Raises ConfigurationError for one: there is nothing to speak."""
    for name, value in flags.items():
        if value is not None:
            raise ConfigurationError(f"{name} {value}: expected with -o FILE.wav, else nothing is spoken")


@dataclass(slots=True)
class Heard:
    """One answer that is spoken. Times are seconds since it was asked, None for what never came.

    `gaps` are the seconds for which sound was wanting, had it been played from the first piece on as it came; as long a
    wait before the first piece would have bridged them all.
    """

    clock: Callable[[], float] = time.monotonic
    pcm: bytearray = field(default_factory=bytearray)
    first_text: float | None = None
    first_sound: float | None = None
    last_sound: float = 0.0
    gaps: float = 0.0
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
                self._hear(base64.b64decode(data))

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
        """One line. The real-time factor is the time from the ask to the last piece of sound, divided by how long it
        all sounds. A short sound has a high one for the wait before it alone; `gaps` say if it could be played as it
        came."""
        began = f"first text {_ms(self.first_text)}, first sound {_ms(self.first_sound)}"
        took = f"{self.seconds:.2f} s of speech in {self.last_sound:.2f} s"
        gaps = f"{_ms(self.gaps)} of gaps" if round(self.gaps * 1000) else "no gap"
        factor = f"real-time factor {self.last_sound / self.seconds:.2f}"
        return f"{began}, {took} ({factor}), {gaps} if played as it comes: {path}"

    def _hear(self, pcm: bytes) -> None:
        now = self._now()
        self.first_sound = now if self.first_sound is None else self.first_sound
        self.last_sound = now
        self.gaps = max(self.gaps, now - self.first_sound - self.seconds)
        self.pcm += pcm

    def _now(self) -> float:
        return self.clock() - self._asked


def _ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:.0f} ms"
