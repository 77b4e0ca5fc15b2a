"""Samples cut for a stream.

Clients join the base64 of all chunks and decode it once. That works only if no chunk but the last ends in padding, so
each is a multiple of 3 bytes, and of 2, so that it is whole samples too.
"""

from __future__ import annotations

SAMPLE_RATE = 24_000
"""Hz, mono: what Qwen3-Omni speaks."""
SAMPLE_BYTES = 2
ALIGNED = 6
"""Bytes: the smallest piece that is whole samples and whole base64."""
CHUNK = 4800
"""Bytes of an event: 100 ms. Smaller ones cost more than they bring, bigger ones come later."""


class Cutter:
    """Takes bytes as they come and gives chunks of `CHUNK` bytes; `finish` gives the rest."""

    def __init__(self, chunk: int = CHUNK) -> None:
        """Raises ValueError unless `chunk`, in bytes, is a multiple of 6."""
        if chunk <= 0 or chunk % ALIGNED:
            raise ValueError(f"chunk is {chunk} bytes: expected a multiple of {ALIGNED}")
        self._chunk = chunk
        self._rest = bytearray()
        self.samples = 0
        """Whole samples given out so far."""

    def push(self, pcm: bytes) -> list[bytes]:
        self._rest += pcm
        whole = len(self._rest) - len(self._rest) % self._chunk
        chunks = [bytes(self._rest[at : at + self._chunk]) for at in range(0, whole, self._chunk)]
        del self._rest[:whole]
        self.samples += whole // SAMPLE_BYTES
        return chunks

    def flush(self) -> bytes:
        """What is there already, as far as it can be joined: for when nothing comes for a while. Empty if nothing."""
        whole = len(self._rest) - len(self._rest) % ALIGNED
        part = bytes(self._rest[:whole])
        del self._rest[:whole]
        self.samples += whole // SAMPLE_BYTES
        return part

    def finish(self) -> bytes:
        """What is left, padded base64 and all, since nothing follows. Raises ValueError for half a sample."""
        if len(self._rest) % SAMPLE_BYTES:
            raise ValueError(f"audio ended in half a sample, after {self.samples} samples and {len(self._rest)} bytes")
        rest = bytes(self._rest)
        self._rest.clear()
        self.samples += len(rest) // SAMPLE_BYTES
        return rest


def seconds(pcm: bytes) -> float:
    """How long so many bytes play."""
    return len(pcm) / SAMPLE_BYTES / SAMPLE_RATE
