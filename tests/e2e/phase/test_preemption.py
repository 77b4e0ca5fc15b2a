"""The phase contract on real vLLM: a request that was thrown out and starts again says what it would have said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.phase.witnesses import Spoken, Witnesses, prompt_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

PROMPT = 41
SPOKEN = 80
REQUESTS = 4
CACHE: dict[str, dict[str, Any]] = {"cached": {}, "uncached": {"prompt_logprobs": 0}}
"""What a request asks for besides. One that wants logprobs of its prompt reads no prefix cache."""


@pytest.mark.parametrize("cache", CACHE)
async def test_a_preempted_request_says_the_same(witnesses: Witnesses, cache: str) -> None:
    prompts = [prompt_of(PROMPT, salt=10 + n) for n in range(REQUESTS)]
    before = await witnesses.cramped.metric("vllm:num_preemptions_total")
    salted = {"cache_salt": cache}  # so that neither has what the other computed
    disturbed = await witnesses.cramped.say(prompts, SPOKEN, **salted, **CACHE[cache])
    assert await witnesses.cramped.metric("vllm:num_preemptions_total") > before
    undisturbed = await witnesses.whole.say_each(prompts, SPOKEN)

    assert [spoken.said for spoken in disturbed] == [spoken.said for spoken in undisturbed]
    for spoken in disturbed:
        check_rows(spoken)
    rows = [row for spoken in disturbed for row in again(witnesses.cramped.scheduled(spoken.request))]
    past = [row for row in rows if row["computed"] + row["span"] > row["prompt_len"] and row["replayed"]]
    assert past, "no row ran past its prompt into what had been spoken before"
    assert any(row["computed"] for row in rows) == (cache == "cached"), "whether something was left in the cache"


def check_rows(spoken: Spoken) -> None:
    """What hooks were told: each decode position once, in its order, however often the prompt was computed."""
    decoded = [row for row in spoken.rows if not row.prefill]
    assert [row.computed for row in decoded] == list(range(PROMPT, PROMPT + SPOKEN - 1))
    for row in spoken.rows:
        assert row.prefill == (row.computed < PROMPT), row
        assert row.prefill or row.step == row.computed - PROMPT, "decode-only state was advanced by a replay"


def again(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that stand no further than one before them did."""
    furthest, found = -1, []
    for row in rows:
        if row["computed"] <= furthest:
            found.append(row)
        furthest = max(furthest, row["computed"])
    return found
