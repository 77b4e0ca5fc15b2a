"""The application: hot paths beside FastAPI, in front of nothing. With an admin port, which port serves what."""

from __future__ import annotations

from fastapi import FastAPI

from common.errors import NotFound
from gateway.api.app import render
from gateway.api.body import Bodies, Receive
from gateway.api.hot import HOT_PATHS, HotPath, Scope
from gateway.api.sink import Send
from gateway.api.streams import Streams
from gateway.telemetry import Metrics

ADMIN = "/admin"
CLIENTS = "/v1"
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose bodies FastAPI may read. It reads them whole, before it looks who asks."""


class Gateway:
    """The ASGI callable that a server runs. `app` is the FastAPI part, which also owns the lifespan.

    With an `admin_port`, `/admin` is there and nowhere else, and `/v1` is everywhere but there.
    """

    def __init__(
        self,
        hot: HotPath,
        app: FastAPI,
        bodies: Bodies,
        streams: Streams,
        metrics: Metrics,
        *,
        admin_port: int | None = None,
    ) -> None:
        self._hot = hot
        self._bodies = bodies
        self.metrics = metrics
        self.app = app
        self._streams = streams
        self._admin_port = admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._admin_port is not None and not _belongs(scope["path"], scope["server"][1] == self._admin_port):
            await render(NotFound(f"there is nothing at {scope['path']} on this port"))(scope, receive, send)
        elif scope["path"] in HOT_PATHS:
            await self._hot(scope, receive, send)
        else:
            reads = scope["method"] in WITH_BODY
            await self.app(scope, self._bodies.bounded(receive) if reads else receive, send)

    def going_down(self) -> None:
        """Event streams end now: they have no end of their own, and the server waits for what is open."""
        self._streams.closing.set()


def _belongs(path: str, on_admin_port: bool) -> bool:
    if _is_under(ADMIN, path):
        return on_admin_port
    return not (on_admin_port and _is_under(CLIENTS, path))


def _is_under(root: str, path: str) -> bool:
    return path == root or path.startswith(root + "/")
