"""How a request's body comes in: each part within its time, and no more than there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from common.errors import BodyTimeout, PayloadTooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Bodies:
    def __init__(self, *, most: int, within: float) -> None:
        """`most` in bytes; `within` in seconds, for each part of a body."""
        self._most = most
        self._within = within

    def check_declared(self, length: bytes | None) -> None:
        """Raises PayloadTooLarge for what a `content-length` says."""
        if length is not None and length.isdigit() and int(length) > self._most:
            raise self._too_large(int(length))

    def bounded(self, receive: Receive) -> Receive:
        """`receive`, which raises BodyTimeout and PayloadTooLarge until the body is whole."""
        size, whole = 0, False

        async def part() -> MutableMapping[str, Any]:
            nonlocal size, whole
            if whole:
                return await receive()
            message = await self._in_time(receive, size)
            size += len(message.get("body", b""))
            if size > self._most:
                raise self._too_large(size)
            whole = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        return part

    async def _in_time(self, receive: Receive, size: int) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(self._within):
                return await receive()
        except TimeoutError:
            raise BodyTimeout(
                f"nothing more of the body came for {self._within:g} s, after {size} bytes of it"
            ) from None

    def _too_large(self, size: int) -> PayloadTooLarge:
        return PayloadTooLarge(f"the body has {size} bytes or more; expected at most {self._most}")
