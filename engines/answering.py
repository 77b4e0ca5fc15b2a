"""What the endpoints of the Talker and of Code2Wav have in common: OpenAI's error object, and work and answers that end
with the client that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from common.errors import DuetError
from common.tasks import end

T = TypeVar("T")


def error_of(e: DuetError) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"message": e.message, "type": e.type, "param": e.param, "code": e.code}


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
