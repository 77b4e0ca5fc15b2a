"""Waiting, in a bounded way, for what another task or process does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T | None]], what: str, *, within: float = 5.0, every: float = 0.01) -> T:
    """What `look` gives as soon as that is neither None nor false. Fails after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
