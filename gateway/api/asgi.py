"""The application: hot paths beside FastAPI, in front of nothing."""

from __future__ import annotations

from fastapi import FastAPI

from gateway.api.hot import HOT_PATHS, HotPath, Receive, Scope
from gateway.api.sink import Send


class Gateway:
    """The ASGI callable that a server runs. `app` is the FastAPI part, which also owns the lifespan."""

    def __init__(self, hot: HotPath, app: FastAPI) -> None:
        self._hot = hot
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in HOT_PATHS:
            await self._hot(scope, receive, send)
        else:
            await self.app(scope, receive, send)
