"""Real engines, ends that are not good ones: what is left at prefill, and whether everybody lives."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from common.connectors import DEFAULT, connector
from common.connectors.base import Handoff, HandoffContext, PrefillReply
from gateway.wire import RELEASE_PATH, release_body
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.test_equality import SALTS, comparable
from tests.real_engines import LEASE, RealEngines

pytestmark = pytest.mark.vllm

FREED_WITHIN = 5.0
"""Seconds; far below the lease of the engines, which would free it too."""
FEW = 0.02
"""Share of an engine's KV that one short request may take."""


async def gauge(url: str, name: str) -> float:
    async with httpx.AsyncClient() as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


async def soon(look: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(FREED_WITHIN):
            while not await look():  # noqa: ASYNC110 - it asks another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {FREED_WITHIN:g} s: {what}") from None


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


async def assert_nothing_is_held(real: Real) -> None:
    """A decode engine that has never met the prefill engine shakes hands first, and sends its word with its next step:
    so both are kept at work."""

    async def empty() -> bool:
        return max([await usage_of(e.url) for e in (real.engines.decode, real.engines.prefill)]) < FEW

    await soon(empty, "neither engine holds KV")


async def count(real: Real, name: str) -> float:
    lines = (await real.client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


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
    await assert_nothing_is_held(real)


REFUSED_ON_DECODE: dict[str, dict[str, Any]] = {
    "by its handler": {"n": 0},
    "by its types": {"stop_token_ids": [10**30]},
}


@pytest.mark.parametrize("name", REFUSED_ON_DECODE)
async def test_what_only_decode_refuses_leaves_no_kv(real: Real, name: str) -> None:
    body = {"model": "tiny", "prompt": long_prompt(), "max_tokens": 4, **REFUSED_ON_DECODE[name]}
    reply = await real.client.post("/v1/completions", json=body)
    assert reply.status_code == 400, reply.text
    await assert_nothing_is_held(real)
    assert await count(real, "duet_handoffs_abandoned_total") == 1
    assert await count(real, "duet_handoffs_released_total") == 1


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


async def test_a_lease_that_is_over_means_a_new_prefill_and_the_right_answer(late: Real) -> None:
    body = {"model": "tiny", "prompt": f"prompt {next(SALTS)} that came late", "max_tokens": 12, "temperature": 0}
    split = await late.client.post("/v1/completions", json=body)
    whole = await late.whole.post("/v1/completions", json=body)
    assert comparable(split.json()) == comparable(whole.json())
    record = (await late.client.get(f"/admin/requests/{split.headers['x-duet-request-id']}")).json()
    assert record["attempt"] == 2
    assert [e["event"] for e in record["events"]].count("prefill_done") == 2
    assert await count(late, "duet_handoffs_released_total") == 1
    await assert_nothing_is_held(late)


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_leaves_no_kv(real: Real, moment: float, stream: bool) -> None:
    body = {"model": "tiny", "prompt": long_prompt(), "max_tokens": 500, "stream": stream}
    client = asyncio.create_task(real.client.post("/v1/completions", json={**body, "ignore_eos": True}))
    await asyncio.sleep(moment)
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)
    await assert_nothing_is_held(real)

    async def over() -> bool:
        return await count(real, "duet_requests_in_flight") == 0

    await soon(over, "the gateway runs nothing")


ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1.5, 10**30, -(10**30), 1e308, "", "x", "1", [], [1], ["a"], {}, {"a": 1}, [[]],
    [None], {"json": 5}, {"regex": "("}, "é" * 50, [2**63], {"type": "json_schema"}, "x" * 5000,
]  # fmt: skip
ODD_FIELDS = (
    "prompt", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stop_token_ids", "n",
    "logprobs",
    "logit_bias", "echo", "suffix", "user", "best_of", "response_format", "structured_outputs", "stream_options",
    "truncate_prompt_tokens", "allowed_token_ids", "bad_words", "prompt_logprobs", "priority", "cache_salt",
    "repetition_penalty", "ignore_eos", "include_stop_str_in_output", "vllm_xargs", "add_special_tokens", "min_p",
    "kv_transfer_params", "skip_special_tokens", "return_token_ids", "prompt_embeds", "request_id", "messages", "tools",
)  # fmt: skip
STEERING: list[Any] = [
    {"do_remote_prefill": True},
    {"do_remote_decode": True, "do_remote_prefill": True},
    {"do_remote_prefill": True, "remote_block_ids": [[1]], "remote_engine_id": "x"},
    {"do_remote_prefill": True, "remote_block_ids": [], "remote_engine_id": "x", "remote_host": "h", "remote_port": 1},
    {"prompt_token_ids": [1] * 5000},
    {"transfer_id": "x" * 10000, "remote_port": -5},
    [1], "x", 7,
]  # fmt: skip


def hostile(dice: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "tiny", "prompt": f"hostile {next(SALTS)}", "max_tokens": 3}
    for name in dice.sample(ODD_FIELDS, dice.randint(1, 3)):
        body[name] = dice.choice(ODD_VALUES)
    if dice.random() < 0.3:
        body["kv_transfer_params"] = dice.choice(STEERING)
    if dice.random() < 0.2:
        body["max_tokens"] = dice.choice([2049, 10**9, 2048])
    if dice.random() < 0.3:
        body["stream"] = True
    return body


async def test_hostile_bodies_leave_both_engines_alive(real: Real) -> None:
    dice = random.Random(6)
    faults = []
    for _ in range(200):
        body = hostile(dice)
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        reply = await real.client.post(path, json=body)
        if not well_formed(reply):
            faults.append((body, reply.status_code, reply.text[:300]))
    assert not faults, faults[:5]
    for engine in (real.engines.prefill, real.engines.decode):
        assert engine.child.running, engine.log()[-2000:]
    reply = await real.client.post("/v1/completions", json={"model": "tiny", "prompt": "and after it", "max_tokens": 3})
    assert reply.status_code == 200, reply.text
    await assert_nothing_is_held(real)


def well_formed(reply: httpx.Response) -> bool:
    """OpenAI's shape, whatever the status; a stream that ended."""
    if reply.headers["content-type"].startswith("text/event-stream"):
        return reply.text.endswith("data: [DONE]\n\n")
    found = json.loads(reply.content)
    if reply.status_code == 200:
        return bool(found["choices"])
    return set(found["error"]) == {"message", "type", "param", "code"}
