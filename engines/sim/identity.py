"""`GET /duet/identity`, as far as a gateway reads it: only where the simulated engine tells a Talker what it computes,
or was told who it is.

Nothing is published there: whoever speaks for a simulated engine must make its words up.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engines.sim.engine import SimEngine

PATH = "/duet/identity"


class Identity:
    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def __call__(self, request: Request) -> Response:
        """404 as a stock engine's, where it has nothing to tell."""
        engine = self._engine
        if engine.channel is None and engine.told is None:
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        told = {"stage": "thinker", "role": "both", "model": engine.model, "runner": "sim", **(engine.told or {})}
        return JSONResponse(told if engine.channel is None else {**told, "channel": engine.channel})
