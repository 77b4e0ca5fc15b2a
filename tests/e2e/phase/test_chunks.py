"""The phase contract on real vLLM: neither where a prompt is cut nor what else is in the batch changes a code."""

from __future__ import annotations

import asyncio

import pytest

from engines.witness.record import Frame, Row
from tests.e2e.phase.witnesses import (
    BUDGET,
    Spoken,
    Step,
    Witnesses,
    largest_batch,
    prompt_of,
    say_at_once,
    spoken_steps,
)

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TAIL = BUDGET + 1
LENGTHS = (1, 2, BUDGET - 1, BUDGET, TAIL, BUDGET + 2, 2 * BUDGET, 2 * BUDGET + 1, 300)
SPOKEN = 24
SPEAKING = 8
LASTING = 400
"""Tokens of those who speak while another comes: they are not done before it has come."""
TRIES = 5
"""How often 32 are asked at once until they are in one batch: a machine that is busy may hold some of them up."""


async def test_a_prompt_s_last_token_on_its_own_is_a_prefill_and_gets_no_frame(witnesses: Witnesses) -> None:
    prompt = prompt_of(TAIL, salt=1)
    (cut,) = await witnesses.chunked.say([prompt], SPOKEN)
    (whole,) = await witnesses.whole.say([prompt], SPOKEN)

    assert cut.shapes[:3] == [(TAIL, 0, BUDGET), (TAIL, TAIL - 1, 1), (TAIL, TAIL, 1)]
    assert [row.prefill for row in cut.rows[:3]] == [True, True, False]
    assert isinstance(cut.events[2], Row), "the tail's row was followed by a frame of its own"
    assert isinstance(cut.events[3], Frame)
    assert whole.shapes[:2] == [(TAIL, 0, TAIL), (TAIL, TAIL, 1)]
    assert cut.said == whole.said
    assert len(set(cut.frames)) > SPOKEN // 2, "codes that hardly change prove nothing"


async def test_rows_of_both_phases_in_one_step_change_nothing(witnesses: Witnesses) -> None:
    prompts = [prompt_of(length, salt=2) for length in LENGTHS]
    alone = await witnesses.whole.say_each(prompts, SPOKEN)
    before = len(witnesses.chunked.events())
    together = await witnesses.chunked.say(prompts, SPOKEN)
    coming_and_going = await say_at_once(witnesses.chunked, prompts, SPOKEN)

    for one, other, third in zip(alone, together, coming_and_going, strict=True):
        assert one.said == other.said == third.said
    for spoken in (*together, *coming_and_going):
        check_phases(spoken)
    mixed = [step for step in spoken_steps(witnesses.chunked.events()[before:]) if step.mixed]
    assert mixed, "no step had a prefill row behind a decode row"
    for step in mixed:
        check_frames(step)


async def test_a_tail_beside_decode_rows_gets_no_frame_and_they_keep_theirs(witnesses: Witnesses) -> None:
    """With `SPEAKING` decode rows a step, that many fewer prompt tokens fit into it: the prompt's last one is left."""
    speaking, late = [prompt_of(2 + n, salt=5) for n in range(SPEAKING)], prompt_of(TAIL - SPEAKING, salt=5)
    task = asyncio.create_task(witnesses.chunked.say(speaking, LASTING))
    before = len(witnesses.chunked.events())
    while largest_batch(witnesses.chunked.events()[before:]) < SPEAKING:
        assert not task.done(), "they never spoke together"
        await asyncio.sleep(0.01)
    (tailed,) = await witnesses.chunked.say([late], SPOKEN)
    disturbed = await task

    assert tailed.shapes[:2] == [(len(late), 0, len(late) - 1), (len(late), len(late) - 1, 1)]
    check_phases(tailed)
    tail = tailed.rows[1]
    (step,) = [step for step in spoken_steps(witnesses.chunked.events()[before:]) if tail in step.rows]
    assert [row.prefill for row in step.rows] == [False] * SPEAKING + [True]
    check_frames(step)
    assert tailed.said == (await witnesses.whole.say([late], SPOKEN))[0].said
    undisturbed = await witnesses.whole.say(speaking, LASTING)
    assert [spoken.said for spoken in disturbed] == [spoken.said for spoken in undisturbed]


async def test_a_cached_prefix_is_progress(witnesses: Witnesses) -> None:
    prompt = prompt_of(TAIL, salt=3)
    first, again = await witnesses.whole.say_each([prompt, prompt], SPOKEN)
    assert first.shapes[0] == (TAIL, 0, TAIL)
    assert again.shapes[0] == (TAIL, TAIL - 1, 1)
    assert again.rows[0].prefill
    assert again.said == first.said


async def test_32_requests_at_once_keep_their_own_codes(witnesses: Witnesses) -> None:
    for salt in range(40, 40 + TRIES):
        prompts = [prompt_of(5 + n, salt=salt) for n in range(32)]
        before = len(witnesses.whole.events())
        together = await witnesses.whole.say(prompts, SPOKEN)
        if (largest := largest_batch(witnesses.whole.events()[before:])) == 32:
            break
    assert largest == 32
    alone = await witnesses.chunked.say_each(prompts, SPOKEN)
    assert [spoken.said for spoken in together] == [spoken.said for spoken in alone]
    assert len({tuple(spoken.frames) for spoken in together}) == 32
    hooks = {(row.prefill, row.hook) for spoken in together for row in spoken.rows}
    assert hooks == {(True, "scalar"), (False, "batched")}


def check_frames(step: Step) -> None:
    """Its decode rows have a frame each, in their order, and its prefill rows have none."""
    spoke = [row.request for row in step.rows if not row.prefill]
    assert [frame.request for frame in step.frames] == spoke, step


def check_phases(spoken: Spoken) -> None:
    """Each row's phase is that of its numbers, decode rows are one token, and only they make the step go on."""
    for row in spoken.rows:
        assert row.prefill == (row.computed < row.prompt_len), row
        assert row.prefill or row.span == 1, row
        assert row.step == max(0, row.computed - row.prompt_len), row
