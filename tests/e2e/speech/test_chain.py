"""The whole chain behind one gateway: what a client reads and hears is what transformers says and speaks."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from common.channel import Publisher, Puller
from common.channel.reference import Key
from common.conditioning import MEDIA, STAGE
from common.engine import Role
from tests.contract.talker.oracle import FRAMES, SPEAKER
from tests.e2e.speech.asking import GREEDY, codes_of, spoken
from tests.e2e.speech.chain import Chain, Said, chain_over
from tests.e2e.speech.stages import Stage, Stages, talker, thinker
from tests.real_engines import wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

CLOSE = 1e-3
"""Of full scale."""
SOUND = 4
"""The first of the cases with sound."""
BLOCKS = 20
"""The cramped Talker's KV blocks of 32 tokens: seven of the longest requests do not fit."""


@pytest.fixture
async def chain(stages: Stages, redis_url: str) -> AsyncIterator[Chain]:
    async with chain_over(redis_url, stages.prefill, stages.decode, stages.talker, [stages.code2wav]) as found:
        yield found


def sampled(seed: int) -> dict[str, Any]:
    """Text and speech at the usual temperatures."""
    sampling = {"temperature": 0.9, "max_frames": FRAMES}
    return {"temperature": 0.9, "seed": seed, "audio": {"voice": SPEAKER, "format": "pcm16", "sampling": sampling}}


def expect_transformers_own(stages: Stages, answers: Sequence[Said]) -> None:
    """Text ids, codes and samples of all cases."""
    import numpy as np
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(stages.omni)
    for case, got in zip(stages.oracle, answers, strict=True):
        assert got.told == [*case.prompt, *case.said[:-1]]
        text = tokenizer.decode(case.said, skip_special_tokens=True)
        assert got.heard.transcript == text.rstrip("\ufffd"), "half a character at the end is nobody's to read"
        assert got.codes == case.codes
        heard, whole = np.frombuffer(got.sound, "<i2") / 32767, stages.whole(case.codes)
        assert len(heard) == len(whole) == len(case.codes) * 1920 - 555
        assert np.abs(heard - whole).max() < CLOSE
        assert got.heard.usage is not None
        assert got.heard.usage["completion_tokens_details"]["audio_tokens"] == len(case.codes)


async def test_sixteen_at_once_are_transformers_own(stages: Stages, chain: Chain) -> None:
    """Ten cases, and six that are sampled; one of these again alone is the same, and with another seed it is not."""
    asked = [chain.say(case) for case in stages.oracle]
    asked += [chain.say(stages.oracle[at], **sampled(42)) for at in range(2, 8)]
    answers = await asyncio.gather(*asked)
    expect_transformers_own(stages, answers[:10])
    among = answers[10 + 2]
    alone = await chain.say(stages.oracle[4], **sampled(42))
    assert (alone.told, alone.codes) == (among.told, among.codes)
    assert len(alone.sound) == len(among.sound)
    assert alone.codes != stages.oracle[4].codes
    assert (await chain.say(stages.oracle[4], **sampled(7))).codes != alone.codes


@pytest.mark.parametrize("at", [1, SOUND])
async def test_streamed_or_not_it_is_the_same(stages: Stages, chain: Chain, at: int) -> None:
    case = stages.oracle[at]
    streamed = await chain.say(case)
    message = await chain.message(case, "wav")
    with wave.open(io.BytesIO(base64.b64decode(message["audio"]["data"]))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert file.readframes(file.getnframes()) == streamed.sound
    assert message["audio"]["transcript"] == streamed.heard.transcript


async def test_hidden_states_that_are_zero_are_other_speech(stages: Stages, chain: Chain) -> None:
    """The equalities above have a reason: what prefill told is told again by hand, as it was, and with zeros."""
    case = stages.oracle[SOUND]
    got = await chain.say(case)
    assert got.codes == case.codes
    name = f"{got.name}-1"
    with Publisher() as again:
        for kind, zero in (("same", False), ("zero", True)):
            reference = await _retold(stages.prefill.stream(f"{name}-prefill", STAGE), again, kind, zero=zero)
            told = [reference, str(stages.decode.stream(f"{name}-decode", STAGE))]
            await spoken(stages.talker, {**GREEDY, "request_id": f"{name}-{kind}", "conditioning": told})
            codes = await codes_of(stages.talker.stream(f"{name}-{kind}", "talker"))
            assert (codes == case.codes) is not zero


async def _retold(stream: Any, publisher: Publisher, name: str, *, zero: bool) -> str:
    from common.channel import Rows

    key = Key(name, STAGE)
    async with Puller() as puller, aclosing(puller.frames(stream)) as frames:
        async for frame in frames:
            rows = dict(frame.rows)
            if zero and MEDIA in rows:
                media = rows[MEDIA]
                rows[MEDIA] = Rows.of(media.dtype, media.shape, bytes(media.data.nbytes))
            publisher.publish(key, rows)
    publisher.close(key)
    return str(publisher.reference(key))


@pytest.fixture(scope="module")
def cramped(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Stage, Path]]:
    """A prefill and a Talker that compute prompts in chunks, most with a tail of one token; the Talker has no room for
    all requests at once, whether or not they meet there. With the Talker's record of its rows."""
    root = tmp_path_factory.mktemp("cramped")
    log = root / "rows.jsonl"
    size = _chunk([len(case.prompt) for case in stages.oracle])
    spoken_size = _chunk(_talker_lengths(stages))
    room = ("--max-model-len", "512", "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", str(BLOCKS))
    with ExitStack() as stack:
        prefill = thinker(stack, stages.omni, Role.PREFILL, root, "--long-prefill-token-threshold", str(size))
        flags = ("--long-prefill-token-threshold", str(spoken_size), *room)
        talking = talker(stack, stages.talker_model, root, *flags, DUET_PHASE_LOG=str(log))
        wait_for(prefill.engine, talking.engine)
        yield prefill, talking, log
        for stage in (prefill, talking):
            stage.engine.child.ask_to_stop()


def _chunk(lengths: Sequence[int]) -> int:
    """Tokens of a chunk: so many that most prompts of these lengths end with a chunk of one."""
    return max(range(8, 33), key=lambda size: sum(length % size == 1 for length in lengths))


def _talker_lengths(stages: Stages) -> list[int]:
    from engines.talker.config import TalkerConfig, marks_of
    from engines.talker.script import Script

    marks = marks_of(TalkerConfig.from_pretrained(stages.talker_model))
    return [Script.of(case.prompt, marks).length for case in stages.oracle]


async def test_chunks_and_tails_change_nothing(
    stages: Stages, cramped: tuple[Stage, Stage, Path], redis_url: str
) -> None:
    prefill, talking, log = cramped
    async with chain_over(redis_url, prefill, stages.decode, talking, [stages.code2wav]) as chain:
        answers = await asyncio.gather(*(chain.say(case) for case in stages.oracle))
    expect_transformers_own(stages, answers)
    assert sum(got.prompt_steps[-1] == 1 and len(got.prompt_steps) > 1 for got in answers) > 0
    rows = [row for line in log.read_text().splitlines() if (row := json.loads(line))["event"] == "row"]
    tails = [row for row in rows if row["span"] == 1 and row["computed"] == row["prompt_len"] - 1 > 0]
    assert tails
    assert all(row["is_prefill"] and not row["mtp"] for row in tails)
