"""The phase contract on real vLLM: a request that was thrown out and starts again says what it would have said."""

from __future__ import annotations

import pytest

from tests.e2e.phase.witnesses import Spoken, Witnesses, prompt_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

PROMPT = 41
SPOKEN = 80
REQUESTS = 4


async def test_a_preempted_request_says_the_same(witnesses: Witnesses) -> None:
    prompts = [prompt_of(PROMPT, salt=10 + n) for n in range(REQUESTS)]
    before = await witnesses.cramped.metric("vllm:num_preemptions_total")
    disturbed = await witnesses.cramped.say(prompts, SPOKEN)
    assert await witnesses.cramped.metric("vllm:num_preemptions_total") > before
    undisturbed = await witnesses.whole.say_each(prompts, SPOKEN)

    assert [spoken.said for spoken in disturbed] == [spoken.said for spoken in undisturbed]
    again = [spoken for spoken in disturbed if started_again(spoken)]
    assert again, "no request started again after it had spoken"
    for spoken in again:
        for row in spoken.rows:
            assert row.prefill == (row.computed < PROMPT), row
            assert row.prefill or row.step == row.computed - PROMPT, "decode-only state was advanced by a replay"


def started_again(spoken: Spoken) -> bool:
    """Whether a prompt row came after a decode row."""
    phases = [row.prefill for row in spoken.rows]
    return True in phases[phases.index(False) :]
