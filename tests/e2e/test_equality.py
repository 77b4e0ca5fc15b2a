"""The rule that everything else serves: a split changes speed, never the answer, and nothing is prefilled twice."""

from __future__ import annotations

import statistics

import pytest

from common.connectors import DEFAULT
from tests.e2e.checking import SALTS, check_split_equals_unsplit, dropping
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.prompts import asks
from tests.real_engines import RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


async def test_split_and_unsplit_answers_are_equal_and_all_kv_came_from_prefill(real: Real) -> None:
    asked = asks(next(SALTS))
    assert len(asked) >= 12
    seen = await check_split_equals_unsplit(real, asked)
    lengths = sorted(s.prompt_tokens for s in seen["split"])
    assert (lengths[0], lengths[-1]) == (1, 1900)
    for name, answers in seen.items():
        gaps = [gap for a in answers for gap in a.gaps]
        print(
            f"\n{name:8} TTFT median {1e3 * statistics.median(a.ttft for a in answers):6.1f} ms, "
            f"ITL median {1e3 * statistics.median(gaps):5.1f} ms over {len(answers)} prompts"
        )


async def test_the_check_above_fails_when_handoffs_are_dropped(real_engines: RealEngines, redis_url: str) -> None:
    async with gateway_over(real_engines, redis_url, kv=dropping(DEFAULT)) as real:
        with pytest.raises(AssertionError, match="local_compute"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[:4])


async def test_engines_log_one_prefill_and_one_decode_and_no_third(real: Real) -> None:
    reply = await real.client.post(
        "/v1/completions", json={"model": real.engines.model, "prompt": "one, two", "max_tokens": 5, "temperature": 0}
    )
    request_id = reply.headers["x-duet-request-id"]
    lines = {
        name: [
            line
            for line in getattr(real.engines, name).log().splitlines()
            if "Received request" in line and request_id in line
        ]
        for name in ("prefill", "decode", "unsplit")
    }
    assert {name: len(found) for name, found in lines.items()} == {"prefill": 1, "decode": 1, "unsplit": 0}
    assert "max_tokens=1," in lines["prefill"][0]
    assert "max_tokens=5," in lines["decode"][0]
    assert f"{request_id}-1-prefill" in lines["prefill"][0]
    assert f"{request_id}-1-decode" in lines["decode"][0]
