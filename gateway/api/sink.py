"""An answer on its way to an ASGI connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.dispatch.sink import Headers

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiSink:
    """Adds `headers` (names lower case) to every answer."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = list(headers)
        self.started = False

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._headers]})

    async def write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
