"""What real engines and a gateway hold: KV, requests, tasks, sockets. Asked until it is nothing, for a bounded time."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable

import httpx

from tests.awaiting import until
from tests.e2e.checking import SALTS
from tests.e2e.conftest import Real
from tests.real_engines import LEASE

FREED_WITHIN = 10.0
"""Seconds; far below the lease of the engines, which would free it too."""
LEASES_OVER_WITHIN = LEASE + 15.0
"""Seconds, for what tests before this one left to its lease on purpose."""
FEW, LONG = 0.02, 0.1
"""Shares of an engine's KV that one short request, and one with `long_prompt`, may take."""


async def gauge(url: str, name: str) -> float:
    """The sum of one of vLLM's metrics over its labels."""
    async with httpx.AsyncClient() as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


async def count(real: Real, name: str) -> float:
    """The sum of one of the gateway's metrics over its labels."""
    lines = (await real.client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


async def soon(look: Callable[[], Awaitable[bool]], what: str, *, within: float = FREED_WITHIN) -> None:
    await until(look, what, within=within, every=0.05)


def long_prompt() -> list[int]:
    """1,500 token ids, as no other prompt has them: some forty KV blocks."""
    dice = random.Random(next(SALTS))
    return [dice.randrange(5, 200) for _ in range(1500)]


async def usage_of(url: str) -> float:
    """How much of its KV an engine has in use. It counts when it computes, so it is given a token to compute."""
    async with httpx.AsyncClient(timeout=60) as client:
        body = {"model": "tiny", "prompt": [7], "max_tokens": 1}
        assert (await client.post(f"{url}/v1/completions", json=body)).status_code == 200
    return await gauge(url, "vllm:kv_cache_usage_perc")


async def no_kv_is_held(real: Real, *, within: float = FREED_WITHIN) -> None:
    """A decode engine that has never met the prefill engine shakes hands first, and sends its word with its next step:
    so both are kept at work."""

    async def empty() -> bool:
        return max([await usage_of(e.url) for e in (real.engines.decode, real.engines.prefill)]) < FEW

    await soon(empty, "neither engine holds KV", within=within)


async def no_kv_is_held_past_its_accounting(real: Real) -> None:
    """Nothing but what is counted as held: an engine in the step that ends a cut prefill keeps its KV."""

    async def accounted() -> bool:
        used = max([await usage_of(e.url) for e in (real.engines.decode, real.engines.prefill)])
        return used < FEW + LONG * await count(real, "duet_handoffs_held")

    await soon(accounted, "the engines hold no more KV than is counted as held")


async def nothing_runs(real: Real) -> None:
    async def over() -> bool:
        return await count(real, "duet_requests_in_flight") == 0

    await soon(over, "the gateway runs nothing")


def open_sockets() -> int:
    """Sockets of this process, in which the gateway runs too."""
    return sum(os.path.realpath(f"/proc/self/fd/{fd}").rpartition("/")[2].startswith("socket:") for fd in _fds())


def _fds() -> list[str]:
    return os.listdir("/proc/self/fd")
