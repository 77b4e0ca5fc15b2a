"""A real gateway in front of real engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from common.connectors import Connector
from gateway.bootstrap import build, http_of
from gateway.settings import Settings
from tests.real_engines import RealEngines
from tests.redis_server import scratch_prefix
from tests.serving import serving

pytestmark = pytest.mark.vllm

HEALTH_TIMEOUT = 60.0
"""Seconds for a health check, unless a test wants one that stands still to be found out: no engine here counts as down
because it answered late."""


@dataclass
class Real:
    """`client` calls the gateway, `whole` the unsplit engine."""

    engines: RealEngines
    url: str
    client: httpx.AsyncClient
    whole: httpx.AsyncClient

    async def sources(self) -> Mapping[str, float]:
        """Prompt tokens of the decode engine by where they came from, so far."""
        return await sources_of(self.engines.decode.url)


async def sources_of(url: str) -> Mapping[str, float]:
    async with httpx.AsyncClient(timeout=60) as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    rows = [line for line in lines if line.startswith("vllm:prompt_tokens_by_source_total{")]
    return {row.split('source="')[1].split('"')[0]: float(row.rsplit(" ", 1)[1]) for row in rows}


@asynccontextmanager
async def gateway_over(
    engines: RealEngines, redis_url: str, *, kv: Connector | None = None, **options: Any
) -> AsyncIterator[Real]:
    async with scratch_prefix(redis_url) as prefix:
        settings = Settings(
            _env_file=None,  # type: ignore[call-arg]
            **{
                "prefill": (engines.prefill.told,),
                "decode": (engines.decode.told,),
                "redis_url": redis_url,
                "redis_prefix": prefix,
                "health_timeout": HEALTH_TIMEOUT,
                **options,
            },
        )
        gateway = build(settings, kv=kv)
        async with (
            serving(gateway, http_of(settings, gateway)) as url,
            httpx.AsyncClient(base_url=url, timeout=120) as client,
            httpx.AsyncClient(base_url=engines.unsplit.url, timeout=120) as whole,
        ):
            yield Real(engines, url, client, whole)


@pytest.fixture
async def real(real_engines: RealEngines, redis_url: str) -> AsyncIterator[Real]:
    async with gateway_over(real_engines, redis_url) as found:
        yield found
