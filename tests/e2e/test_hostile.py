"""Real engines outlive whatever clients send, and clients get a well-formed answer to it."""

from __future__ import annotations

import random

import pytest

from tests.e2e.conftest import Real
from tests.e2e.held import LEASES_OVER_WITHIN, no_kv_is_held, nothing_runs
from tests.e2e.hostile import hostile, well_formed

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

BODIES = 200


async def test_hostile_bodies_leave_both_engines_alive(real: Real) -> None:
    await no_kv_is_held(real, within=LEASES_OVER_WITHIN)
    dice = random.Random(6)
    headers = {"content-type": "application/json"}
    faults = []
    for _ in range(BODIES):
        asked = hostile(dice)
        reply = await real.client.post(asked.path, content=asked.content, headers=headers)
        if not well_formed(reply):
            faults.append(f"{asked}: {reply.status_code} {reply.text[:300]}")
    assert not faults, "\n".join(faults[:5])
    for engine in (real.engines.prefill, real.engines.decode):
        assert engine.child.running, engine.log()[-2000:]
    reply = await real.client.post("/v1/completions", json={"model": "tiny", "prompt": "and after it", "max_tokens": 3})
    assert reply.status_code == 200, reply.text
    await nothing_runs(real)
    await no_kv_is_held(real)
