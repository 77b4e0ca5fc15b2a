"""What the endpoints of the Talker and of Code2Wav have in common: OpenAI's error object, and work and answers that end
with the client that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from common.errors import DuetError
from common.tasks import end

T = TypeVar("T")

LEFT = 499
"""The status where the client left before there was one. It is never sent."""


def error_of(e: DuetError) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"message": e.message, "type": e.type, "param": e.param, "code": e.code}


def refused(e: DuetError, status: int | None = None) -> JSONResponse:
    """OpenAI's error object, with the error's own status or another."""
    return JSONResponse({"error": error_of(e)}, status_code=status or e.status)


async def unless_gone(receive: Callable[[], Awaitable[Any]], work: Awaitable[T]) -> T | None:
    """What `work` comes to; None, with `work` ended, for a client that left before it. `receive` is ASGI's; the body
    must have been read."""
    first = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait({first, gone}, return_when=asyncio.FIRST_COMPLETED)
        return first.result() if first.done() else None
    finally:
        await end(first, gone)


async def answered(
    receive: Callable[[], Awaitable[Any]],
    source: AsyncGenerator[Any, None],
    first: Awaitable[T],
    streamed: Callable[[T], Streamed],
) -> Response:
    """What `streamed` makes of the first that `source` gives, once `first` has it; an error's own answer, or none for a
    client that left before, with `source` closed. `receive` as of `unless_gone`."""
    answer: Response | None = None
    try:
        head = await unless_gone(receive, first)
        answer = Response(status_code=LEFT) if head is None else streamed(head)
    except DuetError as e:
        answer = refused(e)
    finally:
        if not isinstance(answer, Streamed):
            await source.aclose()
    return answer


class Streamed(StreamingResponse):
    """An answer of `parts`, which are made of what `source` gives. Both are closed with it, however it ends: also where
    the client left before a byte was sent, so that `parts` was never begun, or while one was sent, so that nothing was
    raised in either. Starlette closes none."""

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        source: AsyncGenerator[Any, None],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(parts, headers=headers, media_type=media_type)
        self._parts = parts
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source), aclosing(self._parts):
            await super().__call__(scope, receive, send)
