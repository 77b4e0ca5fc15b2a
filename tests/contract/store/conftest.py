"""One suite, three stores: in memory, Redis as fakeredis plays it, and a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import fakeredis
import pytest

from gateway.store.memory import MemoryStore
from gateway.store.port import Store
from gateway.store.redis import RedisStore
from tests.fakes.clock import FakeClock
from tests.redis_server import scratch_prefix

LIVE_TTL, RECORD_TTL = 300.0, 60.0
"""Seconds; no test waits for them where time is real."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A store under test; `wait` lets its time pass, `now` is its time in epoch seconds."""

    store: Store
    wait: Callable[[float], Awaitable[None]]
    now: Callable[[], float]


@asynccontextmanager
async def on_memory() -> AsyncIterator[Bench]:
    clock = FakeClock()

    async def wait(seconds: float) -> None:
        clock.advance(seconds)

    yield Bench(MemoryStore(clock, live_ttl=LIVE_TTL, record_ttl=RECORD_TTL), wait, clock.now)


@asynccontextmanager
async def on_fakeredis() -> AsyncIterator[Bench]:
    client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(), decode_responses=True)
    store = RedisStore(client, live_ttl=LIVE_TTL, record_ttl=RECORD_TTL)
    yield Bench(store, asyncio.sleep, time.time)
    await store.aclose()


@asynccontextmanager
async def on_redis(url: str) -> AsyncIterator[Bench]:
    async with scratch_prefix(url) as prefix:
        store = RedisStore.from_url(url, prefix=prefix, live_ttl=LIVE_TTL, record_ttl=RECORD_TTL)
        yield Bench(store, asyncio.sleep, time.time)
        await store.aclose()


@pytest.fixture(params=["memory", "fakeredis", "redis"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    benches: dict[str, Callable[[], AbstractAsyncContextManager[Bench]]] = {
        "memory": on_memory,
        "fakeredis": on_fakeredis,
        "redis": lambda: on_redis(request.getfixturevalue("redis_url")),
    }
    async with benches[request.param]() as made:
        yield made


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store
