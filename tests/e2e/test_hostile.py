"""Real engines outlive whatever clients send, and clients get the answer that is due to it, well formed."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Real
from tests.e2e.held import LEASES_OVER_WITHIN, count, no_kv_is_held, nothing_runs
from tests.e2e.hostile import FRAMED, Due, Hostile, crafted, exchange, hostile, is_error, well_formed

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

BODIES = 200
HEADERS = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
async def both_live(real: Real) -> AsyncIterator[None]:
    """Whatever came before: both engines live, answer, and hold nothing."""
    await no_kv_is_held(real, within=LEASES_OVER_WITHIN)
    yield
    for engine in (real.engines.prefill, real.engines.decode):
        assert engine.child.running, engine.log()[-2000:]
    reply = await real.client.post("/v1/completions", json={"model": "tiny", "prompt": "and after it", "max_tokens": 3})
    assert reply.status_code == 200, reply.text
    await nothing_runs(real)
    await no_kv_is_held(real)


async def test_crafted_bodies_get_the_answer_that_is_due(real: Real) -> None:
    await each_gets_what_is_due(real, crafted())


async def test_bodies_made_by_chance_get_what_an_unsplit_engine_gives(real: Real) -> None:
    dice = random.Random(6)
    await each_gets_what_is_due(real, [hostile(dice) for _ in range(BODIES)])


async def each_gets_what_is_due(real: Real, asked: Iterable[Hostile]) -> None:
    faults = []
    for one in asked:
        prefills = await count(real, "duet_prefill_seconds_count")
        reply = await real.client.post(one.path, content=one.content, headers=HEADERS)
        engines_asked = await count(real, "duet_prefill_seconds_count") != prefills
        if not well_formed(reply) or not await is_due(real, one, reply, engines_asked):
            faults.append(f"{one}: {reply.status_code} {reply.text[:300]}")
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:10])


async def is_due(real: Real, one: Hostile, reply: httpx.Response, engines_asked: bool) -> bool:
    status = reply.status_code
    if one.due is Due.ANSWER:
        return status == 200 and '"error"' not in reply.text
    if one.due is Due.REFUSAL:
        return 400 <= status < 500 and not engines_asked
    return status in (200, *range(400, 500)) and (status == 200) == await an_unsplit_engine_answers(real, one)


async def an_unsplit_engine_answers(real: Real, one: Hostile) -> bool:
    """What no engine may see is not asked of this one either."""
    body: dict[str, Any] = json.loads(one.content)
    for name in ("kv_transfer_params", "request_id"):
        body.pop(name, None)
    if isinstance(body.get("vllm_xargs"), dict):
        body["vllm_xargs"].pop("kv_transfer_params", None)
    return (await real.whole.post(one.path, content=json.dumps(body).encode(), headers=HEADERS)).status_code == 200


async def test_what_is_framed_wrongly_gets_the_answer_that_is_due(real: Real) -> None:
    faults = []
    for name, (sent, due) in FRAMED.items():
        status, body = await exchange(real.url, sent)
        if status != due or (due != 200 and not is_error(body)):
            faults.append(f"{name}: {status} {body[:300]!r}, due: {due}")
    assert not faults, "\n".join(faults)
