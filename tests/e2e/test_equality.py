"""The rule that everything else serves: a split changes speed, never the answer, and nothing is prefilled twice."""

from __future__ import annotations

import json
import statistics
from typing import Any

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


UNARY: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "logprobs": {"temperature": 0, "logprobs": 2},
    "stop string": {"temperature": 0, "stop": ["a"]},
    "min_tokens": {"temperature": 0, "min_tokens": 8, "stop": ["a"]},
    "max_tokens 1": {"temperature": 0, "max_tokens": 1},
    "suffix of odd fields": {"temperature": 0, "user": "u", "unknown_field": {"a": [1.0, 1e3]}, "top_k": 5},
    "logit bias": {"temperature": 0, "logit_bias": {"300": 5}},
}
WHOLE: dict[str, dict[str, Any]] = {
    "two choices": {"prompt": "some words", "temperature": 0.8, "seed": 3, "n": 2},
    "several prompts": {"prompt": ["first", "second"], "temperature": 0},
    "prompt logprobs": {"prompt": "some words", "prompt_logprobs": 1, "temperature": 0},
    "echo": {"prompt": "some words", "temperature": 0, "echo": True},
    "echo and logprobs": {"prompt": "some words", "echo": True, "logprobs": 1, "temperature": 0},
}


@pytest.mark.parametrize("name", UNARY)
async def test_whole_answers_are_equal_field_by_field(real: Real, name: str) -> None:
    prompt = f"prompt {next(SALTS)} for {name}"
    body = {"model": real.engines.model, "prompt": prompt, "max_tokens": 12, **UNARY[name]}
    before = await real.sources()
    split = await real.client.post("/v1/completions", json=body)
    whole = await real.whole.post("/v1/completions", json=body)
    assert split.status_code == 200, split.text
    assert comparable(split.json()) == comparable(whole.json())
    after = await real.sources()
    assert after["local_compute"] == before["local_compute"]
    assert "kv_transfer_params" not in split.text


@pytest.mark.parametrize("name", WHOLE)
async def test_what_cannot_be_split_goes_whole_and_is_counted(real: Real, name: str) -> None:
    body = {"model": real.engines.model, "max_tokens": 6, **WHOLE[name]}
    split = await real.client.post("/v1/completions", json=body)
    whole = await real.whole.post("/v1/completions", json=body)
    assert comparable(split.json()) == comparable(whole.json())
    record = (await real.client.get(f"/admin/requests/{split.headers['x-duet-request-id']}")).json()
    assert record["prefill"] is None
    assert f'duet_unsplit_total{{reason="{record["unsplit"]}"}} 1.0' in (await real.client.get("/metrics")).text


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between any two answers, and between two engines' caches."""
    text = json.dumps({k: v for k, v in body.items() if k not in ("id", "created", "system_fingerprint")})
    kept = json.loads(text)
    kept.pop("kv_transfer_params", None)
    kept.pop("ec_transfer_params", None)
    kept["usage"].pop("prompt_tokens_details", None)
    return rounded(kept)


def rounded(value: Any) -> Any:
    """Log-probabilities to four places: their last bits depend on the batch."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value
