"""A gateway in front of simulated engines, with a real Redis or Valkey behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import pytest

from common.connectors import Connector
from engines.sim.engine import SimEngine
from engines.sim.runner import running
from gateway.bootstrap import build
from gateway.settings import Settings
from tests.awaiting import WITHIN, until
from tests.redis_server import scratch_prefix
from tests.serving import serving

MODEL = "sim"
T = TypeVar("T")


@dataclass
class Pair:
    """One prefill and one decode engine, the gateway's address and a client for it."""

    prefill: SimEngine
    decode: SimEngine
    prefill_url: str
    decode_url: str
    url: str
    client: httpx.AsyncClient
    settings: Settings

    async def chat(self, text: str = "hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "hello", **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/completions", json={"model": MODEL, "prompt": prompt, **fields})

    async def record(self, reply: httpx.Response) -> dict[str, Any]:
        return await self.record_of(reply.headers["x-duet-request-id"])

    async def record_of(self, request_id: str) -> dict[str, Any]:
        return (await self.client.get(f"/admin/requests/{request_id}")).json()

    async def record_in(self, state: str, request_id: str, *, within: float = WITHIN) -> dict[str, Any]:
        """The record as soon as it is in a state: it is written behind the answer."""

        async def look() -> dict[str, Any] | None:
            record = await self.record_of(request_id)
            return record if record.get("state") == state else None

        return await until(look, f"request {request_id} is {state}", within=within)

    async def metric(self, name: str) -> float:
        """The sum of a counter or gauge over its labels; 0 if it is not there."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        found = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@asynccontextmanager
async def gateway_before(
    prefill: tuple[SimEngine, str], decode: tuple[SimEngine, str], redis_url: str, prefix: str, /, **options: Any
) -> AsyncIterator[Pair]:
    kv: Connector | None = options.pop("kv", None)
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        **{
            "prefill": (prefill[1],),
            "decode": (decode[1],),
            "redis_url": redis_url,
            "redis_prefix": prefix,
            "health_interval": 0.1,
            "health_failures": 2,
            "health_timeout": 60.0,  # a machine that stands still is no fault of an engine's
            "connect_timeout": 60.0,
            "load_interval": 0.05,
            "owner_lease": 2.0,
            **options,
        },
    )
    async with serving(build(settings, kv=kv)) as url, httpx.AsyncClient(base_url=url, timeout=20) as client:
        yield Pair(prefill[0], decode[0], prefill[1], decode[1], url, client, settings)


def _two(settings: dict[str, Any]) -> tuple[SimEngine, SimEngine]:
    return SimEngine(**settings), SimEngine(**settings)


class World:
    """Makes pairs with what a test wants of them; all share the engines and the Redis prefix."""

    def __init__(self, stack: AsyncExitStack, redis_url: str, prefix: str) -> None:
        self._stack = stack
        self.redis_url = redis_url
        self.prefix = prefix
        self.prefill: tuple[SimEngine, str] | None = None
        self.decode: tuple[SimEngine, str] | None = None

    async def engines(self, **settings: Any) -> None:
        self.prefill, self.decode = [(engine, await self._run(engine)) for engine in _two(settings)]

    async def another(self, **settings: Any) -> tuple[SimEngine, str]:
        """One more engine, which no gateway knows of yet."""
        engine = SimEngine(**settings)
        return engine, await self._run(engine)

    async def _run(self, engine: SimEngine) -> str:
        return await self._stack.enter_async_context(running(engine))

    async def enter(self, thing: AbstractAsyncContextManager[T]) -> T:
        """What lives as long as this world."""
        return await self._stack.enter_async_context(thing)

    async def gateway(self, **options: Any) -> Pair:
        if self.prefill is None or self.decode is None:
            await self.engines()
        assert self.prefill is not None
        assert self.decode is not None
        decode = options.pop("behind", self.decode)
        pair = gateway_before(self.prefill, decode, self.redis_url, self.prefix, **options)
        return await self._stack.enter_async_context(pair)


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with scratch_prefix(redis_url) as prefix, AsyncExitStack() as stack:
        yield World(stack, redis_url, prefix)


@pytest.fixture
async def pair(world: World) -> Pair:
    return await world.gateway()
