"""Real engines, and ends that are not good ones: what is left at prefill, in the gateway, and on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from common.connectors import DEFAULT, connector
from common.connectors.base import Handoff, HandoffContext, PrefillReply
from gateway.wire import RELEASE_PATH, release_body
from tests.e2e.checking import SALTS, comparable
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.held import (
    FEW,
    LEASES_OVER_WITHIN,
    all_leases_are_over,
    count,
    finished,
    holding,
    long_prompt,
    no_kv_is_held,
    nothing_is_held_uncounted,
    nothing_runs,
    open_sockets,
    soon,
    usage_of,
)
from tests.real_engines import LEASE, RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

MOMENTS = [0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05]
MOMENTS += [0.06, 0.075, 0.09, 0.11, 0.14, 0.18, 0.24, 0.32, 0.45, 0.7]
"""Seconds after which a client leaves: from before its request is read, over prefill and handoff, into decode."""
IDLE_SOCKETS = 4
"""Connections that pools may keep for later: one request more may find none free, and make one."""


@pytest.fixture(autouse=True)
async def clean(real: Real) -> None:
    """Tests before these may have left KV to its lease."""
    await no_kv_is_held(real, within=LEASES_OVER_WITHIN)


async def test_a_release_frees_what_prefill_holds(real: Real) -> None:
    """And without one it is held: else the checks here would show nothing."""
    body = {"model": "tiny", "prompt": long_prompt(), "max_tokens": 1, "min_tokens": 1, "ignore_eos": True}
    steering = {"do_remote_decode": True, "do_remote_prefill": False}
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{real.engines.prefill.url}/v1/completions"
        reply = await client.post(url, json={**body, "kv_transfer_params": steering})
        assert await usage_of(real.engines.prefill.url) > 2 * FEW
        release = release_body("tiny", reply.json()["kv_transfer_params"])
        headers = {"content-type": "application/json"}
        refused = await client.post(f"{real.engines.decode.url}{RELEASE_PATH}", content=release, headers=headers)
    assert "n must be at least 1" in refused.text, "what refuses it must be vLLM's handler"
    await no_kv_is_held(real)


REFUSED_ON_DECODE: dict[str, dict[str, Any]] = {
    "by its handler": {"n": 0},
    "by its types": {"stop_token_ids": [10**30]},
}


@pytest.mark.parametrize("name", REFUSED_ON_DECODE)
async def test_what_only_decode_refuses_leaves_no_kv(real: Real, name: str) -> None:
    body = {"model": "tiny", "prompt": long_prompt(), "max_tokens": 4, **REFUSED_ON_DECODE[name]}
    reply = await real.client.post("/v1/completions", json=body)
    assert reply.status_code == 400, reply.text
    await no_kv_is_held(real)
    for kind in ("abandoned", "released"):
        await counted_once(real, kind)


async def counted_once(real: Real, kind: str) -> None:
    """The gateway counts behind the answer."""

    async def once() -> bool:
        return await count(real, f"duet_handoffs_{kind}_total") == 1

    await soon(once, f"one handoff is counted as {kind}")


@pytest.fixture
async def late(real_engines: RealEngines, redis_url: str) -> AsyncIterator[Real]:
    """A gateway to which every first handoff of a request comes when its lease is over."""

    class Late(type(connector(DEFAULT))):  # type: ignore[misc]
        def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
            made = super().handoff(ctx, reply)
            over = ctx.now - 1 if ctx.transfer_id.endswith("-1-kv") else made.expires_at
            return Handoff(made.connector, made.params, made.prompt_tokens, over)

    async with gateway_over(real_engines, redis_url, kv=Late(lease=LEASE)) as found:
        yield found


async def test_a_handoff_that_came_late_is_released_and_prefilled_again(late: Real) -> None:
    body = {"model": "tiny", "prompt": f"prompt {next(SALTS)} that came late", "max_tokens": 12, "temperature": 0}
    split = await late.client.post("/v1/completions", json=body)
    whole = await late.whole.post("/v1/completions", json=body)
    assert comparable(split.json()) == comparable(whole.json())
    record = await finished(late, split)
    assert record["attempt"] == 2
    assert [e["event"] for e in record["events"]].count("prefill_done") == 2
    await no_kv_is_held(late)
    await counted_once(late, "released")


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "streamed"])
async def test_a_client_that_leaves_at_any_time_leaves_nothing(real: Real, stream: bool) -> None:
    sample = {"model": "tiny", "prompt": long_prompt(), "max_tokens": 2}
    assert (await real.client.post("/v1/completions", json=sample)).status_code == 200
    sockets, tasks = open_sockets(), len(asyncio.all_tasks())
    assert len(MOMENTS) >= 20
    before = await holding(real)
    for moment in MOMENTS:
        body = {**sample, "prompt": long_prompt(), "max_tokens": 500, "ignore_eos": True, "stream": stream}
        client = asyncio.create_task(real.client.post("/v1/completions", json=body))
        await asyncio.sleep(moment)
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)
        before = await nothing_is_held_uncounted(real, before)
        await nothing_runs(real)

    async def as_before() -> bool:
        return open_sockets() <= sockets + IDLE_SOCKETS and len(asyncio.all_tasks()) <= tasks

    await soon(as_before, f"no more than {tasks} tasks, and {sockets} sockets but for idle ones")
    await all_leases_are_over(real)
