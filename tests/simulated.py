"""A simulated engine in the test's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from engines.sim.app import create_app
from engines.sim.engine import SimEngine
from engines.sim.server import SimProtocol
from tests.serving import bound, serving


@asynccontextmanager
async def sim(**settings: Any) -> AsyncIterator[tuple[SimEngine, str]]:
    """A simulated engine and its URL."""
    sock = bound()
    engine = SimEngine(port=sock.getsockname()[1], **settings)
    async with serving(create_app(engine), sock, http=SimProtocol) as url:
        yield engine, url
