"""Where an answer goes. The API layer writes it to an ASGI connection, tests keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Headers = Sequence[tuple[bytes, bytes]]


class Sink(Protocol):
    @property
    def started(self) -> bool:
        """Whether the status line has left: from then on an error can only be an event in the stream."""
        ...

    async def start(self, status: int, headers: Headers) -> None:
        """Once. Header names are lower case."""
        ...

    async def write(self, body: bytes) -> None:
        """Returns when the connection can take more: this is where back-pressure comes from."""
        ...

    async def end(self, body: bytes = b"") -> None:
        """Once, last."""
        ...
