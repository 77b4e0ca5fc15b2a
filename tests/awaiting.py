"""Waiting, in a bounded way, for what another task or process does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.transport import awake

T = TypeVar("T")
WITHIN = 60.0
"""Seconds; long, because a machine that is busy with other things may take many of them."""


async def until(
    look: Callable[[], Awaitable[T | None]], what: str, *, within: float = WITHIN, every: float = 0.01
) -> T:
    """What `look` gives as soon as that is neither None nor false. Fails after `within` seconds, not counting time in
    which this process stood still."""
    try:
        async with awake.within(within):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
