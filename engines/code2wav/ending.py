"""How a call ends that comes to no good end: with an answer that breaks off, and one line in the log.

| what happens | what is seen |
| --- | --- |
| what the sound is made of fails, after its beginning | the answer breaks off |
| the server ends before the call does | 503, or the answer breaks off if it has begun |
| the client leaves | nothing; what ran for it ends at once |

An answer breaks off by returning without its body's end: a server then closes the connection, and no client takes half
an answer for a whole one. An exception would do the same, with a traceback for what is nobody's fault here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.errors import DuetError
from engines.answering import Streamed, refused
from engines.code2wav.errors import ServerEnds

log = logging.getLogger(__name__)
UVICORN = "uvicorn.error"
"""The log of what uvicorn does, not of its errors only."""
_UNFINISHED = "ASGI callable returned without completing response."


class Calls:
    """ASGI middleware. `running` are the tasks of the calls that run."""

    def __init__(self, app: ASGIApp, running: set[asyncio.Task[Any]]) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._app(scope, receive, told)
        except DuetError:
            if not begun:
                raise
        except asyncio.CancelledError:  # by the server, which waits for no more than the task's end
            log.warning("%s %s is ended with the server", scope["method"], scope["path"])
            if not begun:
                await refused(ServerEnds("the server ends"))(scope, receive, send)
        finally:
            self._running.discard(task)


class Sound(Streamed):
    """`head`, then `rest`."""

    def __init__(self, head: bytes, rest: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(_joined(head, rest), rest, media_type="audio/pcm", headers=headers)


def not_unfinished(record: logging.LogRecord) -> bool:
    """A filter for uvicorn's log: why an answer broke off has been said."""
    return record.msg != _UNFINISHED


async def _joined(head: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield head
    async for part in rest:
        yield part
