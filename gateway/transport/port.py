"""How the gateway calls an engine. `http.py` does it over HTTP/1.1; another client can take its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from common.engine import Engine


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds, `math.inf` for no bound; each bounds one wait. Time in which the reader is busy with what it was given
    counts for none."""

    connect: float = 5.0
    """Until there is a connection, from the pool or new."""
    headers: float = 600.0
    """From the request beginning to leave to the reply's headers: a unary reply's come only when it is whole."""
    idle: float = 120.0
    """From one piece of content to the next."""
    first: float | None = None
    """From the request beginning to leave to the reply's first content; None where `idle` is bound enough."""
    whole: float | None = None
    """From the request beginning to leave to the reply's end; None for what may take as long as it likes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Sent:
    """What became of a call, also of one that is cut before it has a reply."""

    maybe: bool = False
    """Whether the engine may have seen something of it."""


class ReplyStream(Protocol):
    """A reply whose headers are in and whose body is still coming."""

    status: int
    headers: Mapping[str, str]

    def chunks(self, *, every: bool = True) -> AsyncIterator[bytes]:
        """The body as it arrives, at any boundary. `every` chunk is content; else `said` tells which one was.

        Raises EngineBroken if it ends early, EngineTimeout if content is late.
        """
        ...

    def said(self) -> None:
        """The latest chunk had content in it, or ended some."""
        ...

    async def read(self) -> bytes:
        """The rest of the body, whole. Raises as `chunks` does."""
        ...

    def close(self) -> None:
        """Ends the call. An engine whose reply has not ended sees its client leave. Safe to call again."""
        ...


class EngineClient(Protocol):
    async def get(self, engine: Engine, path: str, *, timeout: float) -> Reply:
        """`timeout` in seconds for all of it, of which time in which this process stood still counts for little: it
        is no fault of the engine's. Raises EngineUnreachable or EngineTimeout."""
        ...

    async def post(
        self,
        engine: Engine,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        deadlines: Deadlines,
        sent: Sent | None = None,
    ) -> ReplyStream:
        """Sends JSON and returns at the response's headers, whatever their status. The caller closes the reply. `sent`
        is kept up to date for the caller.

        Raises EngineUnreachable, EngineTimeout, EngineBroken. Cancelling the call closes the connection.
        """
        ...

    async def aclose(self) -> None: ...
