"""The phase contract on real vLLM with prefill and decode on two engines, a gateway before them."""

from __future__ import annotations

import asyncio

import pytest

from engines.witness.record import Frame
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.phase.witnesses import Spoken, Witnesses, ask, prompt_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

LENGTHS = (2, 5, 32, 33, 64, 100, 300)
SPOKEN = 24


async def test_decode_begins_with_a_prefill_of_one_token(witnesses: Witnesses, redis_url: str) -> None:
    prompts = [prompt_of(length, salt=20) for length in LENGTHS]
    async with gateway_over(witnesses.split, redis_url) as real:
        split = await asyncio.gather(*(say_split(real, witnesses, prompt) for prompt in prompts))
    whole = await witnesses.whole.say_each(prompts, SPOKEN)

    assert [spoken.said for spoken in split] == [spoken.said for spoken in whole]
    for prompt, spoken in zip(prompts, split, strict=True):
        n = len(prompt)
        assert spoken.shapes == [(n, n - 1, 1), *((n, n + step, 1) for step in range(SPOKEN - 1))]
        assert [row.prefill for row in spoken.rows] == [True] + [False] * (SPOKEN - 1)


async def say_split(real: Real, witnesses: Witnesses, prompt: list[int]) -> Spoken:
    """One answer through the gateway, with what decode's engine wrote of it. Prefill's speaks no frame."""
    reply = await real.client.post("/v1/completions", json=ask(prompt, SPOKEN))
    assert reply.status_code == 200, reply.text
    request = reply.headers["x-duet-request-id"]
    prefilled = witnesses.prefill.of(request)
    assert Spoken((), prefilled).shapes == [(len(prompt), 0, len(prompt))]
    assert not any(isinstance(event, Frame) for event in prefilled)
    (choice,) = reply.json()["choices"]
    return Spoken(tuple(choice["token_ids"]), witnesses.decode.of(request))
