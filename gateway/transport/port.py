"""How the gateway calls an engine. `http.py` does it over HTTP/1.1; another client can take its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from common.engine import Engine


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds; each bounds one wait, and there is no bound on the whole."""

    connect: float = 5.0
    headers: float = 600.0
    """From the request's last byte to the response's headers: a unary reply comes only when it is whole."""
    idle: float = 120.0
    """Between two chunks of a stream."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReplyStream(Protocol):
    """A reply whose headers are in and whose body is still coming."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, at any boundary. Raises EngineBroken if it ends early, EngineTimeout if idle."""
        ...

    async def read(self) -> bytes:
        """The rest of the body, whole. Raises as `chunks` does."""
        ...

    def close(self) -> None:
        """Ends the call. An engine whose reply has not ended sees its client leave. Safe to call again."""
        ...


class EngineClient(Protocol):
    async def get(self, engine: Engine, path: str, *, timeout: float) -> Reply:
        """Raises EngineUnreachable or EngineTimeout."""
        ...

    async def post(
        self, engine: Engine, path: str, body: bytes, *, headers: Mapping[str, str], deadlines: Deadlines
    ) -> ReplyStream:
        """Sends JSON and returns at the response's headers, whatever their status. The caller closes the reply.

        Raises EngineUnreachable, EngineTimeout, EngineBroken. Cancelling the call closes the connection.
        """
        ...

    async def aclose(self) -> None: ...
