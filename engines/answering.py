"""What the endpoints of the Talker and of Code2Wav have in common: OpenAI's error object, and work that ends with the
client that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

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
