"""What real engines and a gateway hold: KV, requests, tasks, sockets. Asked until it is nothing, for a bounded time."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from tests.awaiting import until
from tests.e2e.checking import SALTS
from tests.e2e.conftest import Real
from tests.real_engines import LEASE

T = TypeVar("T")
FREED_WITHIN = 20.0
"""Seconds; below the lease of the engines, which would free it too."""
LEASES_OVER_WITHIN = LEASE + 15.0
"""Seconds, for what tests before this one left to its lease on purpose."""
FEW, LONG = 0.02, 0.1
"""Shares of an engine's KV that one short request, and one with `long_prompt`, may take."""


async def gauge(url: str, name: str) -> float:
    """The sum of one of vLLM's metrics over its labels."""
    async with httpx.AsyncClient(timeout=60) as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


async def count(real: Real, name: str) -> float:
    """The sum of one of the gateway's metrics over its labels."""
    lines = (await real.client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


async def soon(look: Callable[[], Awaitable[T | None]], what: str, *, within: float = FREED_WITHIN) -> T:
    return await until(look, what, within=within, every=0.05)


async def finished(real: Real, reply: httpx.Response) -> dict[str, Any]:
    """The record of a request as soon as it is finished: it is written behind the answer."""

    async def look() -> dict[str, Any] | None:
        record = (await real.client.get(f"/admin/requests/{reply.headers['x-duet-request-id']}")).json()
        return record if record.get("state") == "finished" else None

    return await until(look, "the request is finished", every=0.05)


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


@dataclass(frozen=True)
class Holding:
    """What engines hold, and how much the gateway has ever counted as held for a lease. A difference of two of them
    tells of what happened in between alone: leases that end meanwhile only make it smaller."""

    used: dict[str, float]
    """Engine -> share of its KV."""
    unnamed: float
    """What nobody can release."""
    abandoned: float
    released: float


async def holding(real: Real) -> Holding:
    kinds = [await count(real, f"duet_handoffs_{kind}_total") for kind in ("unnamed", "abandoned", "released")]
    used = {e.role.value: await usage_of(e.url) for e in (real.engines.decode, real.engines.prefill)}
    return Holding(used, *kinds)


async def nothing_is_held_uncounted(real: Real, before: Holding) -> Holding:
    """Since then the engines hold no more than was counted since then: an engine in the step that ends a cut prefill
    keeps its KV. What was counted earlier covers nothing, and what has a name is released."""

    async def accounted() -> Holding | None:
        now = await holding(real)
        more = max(now.used[role] - before.used[role] for role in now.used)
        counted = more < FEW + LONG * (now.unnamed - before.unnamed)
        return now if counted and now.abandoned == now.released else None

    return await soon(accounted, "the engines hold no more KV than was counted since")


async def all_leases_are_over(real: Real) -> None:
    """What was counted as held is no longer, in the gateway and in the engines."""

    async def none_is_counted() -> bool:
        return await count(real, "duet_handoffs_held") == 0

    await soon(none_is_counted, "no KV is counted as held", within=LEASES_OVER_WITHIN)
    await no_kv_is_held(real)


async def nothing_runs(real: Real) -> None:
    async def over() -> bool:
        return await count(real, "duet_requests_in_flight") == 0

    await soon(over, "the gateway runs nothing")


def open_sockets() -> int:
    """Sockets of this process, in which the gateway runs too."""
    return sum(os.path.realpath(f"/proc/self/fd/{fd}").rpartition("/")[2].startswith("socket:") for fd in _fds())


def _fds() -> list[str]:
    return os.listdir("/proc/self/fd")
