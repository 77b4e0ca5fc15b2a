"""Ending background tasks, for good."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_AFTER = 0.5
"""Seconds that a cancelled task gets before it is cancelled again."""


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks until they are done, and takes note of what they raised.

    Once is not enough: a cancellation that meets a library's own timeout at the wrong moment comes out of it as that
    timeout, and a loop that catches it goes on for ever.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_AFTER)
    await asyncio.gather(*tasks, return_exceptions=True)
