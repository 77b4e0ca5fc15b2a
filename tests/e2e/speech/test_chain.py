"""The whole chain behind one gateway: what a client reads and hears is what transformers says and speaks."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from common.channel import Publisher, Puller
from common.channel.reference import Key
from common.conditioning import MEDIA, STAGE
from tests.contract.talker.oracle import FRAMES, SPEAKER, sound, with_sound
from tests.e2e.speech.asking import GREEDY, codes_of, spoken
from tests.e2e.speech.chain import Chain, Said, body_of, chain_over, drain, expect_sound, expect_transformers_own
from tests.e2e.speech.stages import Stages
from tests.e2e.speech.telling import paced

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

SOUND = 4
"""The first of the cases with sound."""
NO_PREFILL = 'duet_unsplit_total{reason="no_prefill"}'


@pytest.fixture
async def chain(stages: Stages, redis_url: str) -> AsyncIterator[Chain]:
    async with chain_over(redis_url, stages.prefill, stages.decode, stages.talker, [stages.code2wav]) as found:
        yield found


def sampled(seed: int) -> dict[str, Any]:
    """Text and speech at the usual temperatures."""
    sampling = {"temperature": 0.9, "max_frames": FRAMES}
    return {"temperature": 0.9, "seed": seed, "audio": {"voice": SPEAKER, "format": "pcm16", "sampling": sampling}}


async def test_sixteen_at_once_are_transformers_own(stages: Stages, chain: Chain) -> None:
    """Ten cases, and six that are sampled, each with a seed of its own: each of these again alone is the same, and with
    another's seed it is not."""
    sampling = [(stages.oracle[at], 40 + at) for at in range(2, 8)]
    asked = [chain.say(case) for case in stages.oracle]
    asked += [chain.say(case, **sampled(seed)) for case, seed in sampling]
    answers = await asyncio.gather(*asked)
    expect_transformers_own(stages, answers[:10])
    for (case, seed), among in zip(sampling, answers[10:], strict=True):
        alone = await chain.say(case, **sampled(seed))
        expect_the_same(alone, among)
        assert alone.codes != case.codes
    (case, _), (_, seed), *_ = sampling
    other = await chain.say(case, **sampled(seed))
    assert (other.told, other.codes) != (answers[10].told, answers[10].codes)


def expect_the_same(one: Said, other: Said) -> None:
    """Ids and codes; and samples, but for what the rounding of another batch is."""
    import numpy as np

    assert one.codes, "silence would be equal too"
    assert (one.told, one.codes) == (other.told, other.codes)
    here, there = (np.frombuffer(said.sound, "<i2").astype(int) for said in (one, other))
    assert len(here) == len(there)
    assert np.abs(here - there).max() <= 1


@pytest.mark.parametrize("at", [1, SOUND])
async def test_streamed_or_not_it_is_the_same(stages: Stages, chain: Chain, at: int) -> None:
    case = stages.oracle[at]
    streamed = await chain.say(case)
    message = await chain.message(case, "wav")
    with wave.open(io.BytesIO(base64.b64decode(message["audio"]["data"]))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert file.readframes(file.getnframes()) == streamed.sound
    assert message["audio"]["transcript"] == streamed.heard.transcript


async def test_sound_of_another_rate_is_heard_as_transformers_hears_it(stages: Stages, chain: Chain) -> None:
    expect_transformers_own(stages, [await chain.say(stages.resampled)], [stages.resampled])


def of_wav(at: int, value: int, size: int) -> str:
    """A WAV, with a number of its head replaced."""
    data = bytearray(base64.b64decode(sound(0.1, 200.0)))
    data[at : at + size] = value.to_bytes(size, "little")
    return base64.b64encode(data).decode()


BROKEN = {
    "no base64": "?",
    "nothing": "",
    "no sound": base64.b64encode(b"no sound" * 99).decode(),
    "a head that is cut": sound(0.1, 200.0)[:28],
    "a head alone": sound(0.1, 200.0)[:60],
    "no channels": of_wav(22, 0, 2),
    "no rate": of_wav(24, 0, 4),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_broken_sound_is_refused(stages: Stages, chain: Chain, data: str) -> None:
    body = {**body_of(stages.resampled), "messages": [with_sound("What is it?", data)]}
    reply = await chain.client.post("/v1/chat/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), reply.text


@pytest.mark.parametrize("tokens", range(1, 5))
async def test_each_token_is_told_of_once_spoken_or_not(stages: Stages, chain: Chain, tokens: int) -> None:
    """Its id and its logprobs, also of the last one, whether it has a text of its own or not."""
    wanted = {"max_tokens": tokens, "logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    spoken = (await chain.say(stages.oracle[0], **wanted)).heard.events
    body = {**body_of(stages.oracle[0]), **wanted, "stream": True}
    reply = await chain.client.post(
        "/v1/chat/completions", json={k: body[k] for k in body.keys() - {"modalities", "audio"}}
    )
    *lines, done = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert done == "[DONE]"
    assert told_of(spoken) == told_of([json.loads(line) for line in lines])
    assert [len(told) for told in told_of(spoken)] == [tokens, tokens]


def told_of(events: list[dict[str, Any]]) -> tuple[list[int], list[str]]:
    """The ids, and the tokens with logprobs, that a client joins."""
    choices = [choice for event in events for choice in event["choices"]]
    ids = [id_ for choice in choices for id_ in choice.get("token_ids") or []]
    logprobs = [choice["logprobs"]["content"] for choice in choices if choice.get("logprobs")]
    return ids, [one["token"] for content in logprobs for one in content]


async def test_speech_overlaps_text(stages: Stages, redis_url: str) -> None:
    """Of a hundred tokens the Thinker says forty, and not one more until sound has been heard: speech that waited for
    more of the text would wait for ever."""
    case = stages.long[0]
    async with paced(redis_url, case, [stages.talker.engine.url], [stages.code2wav.url]) as pace:
        await pace.decode.let_say(40)
        async with pace.stream() as (heard, kinds), asyncio.timeout(120):
            async for kind in kinds:
                if kind == "data":
                    await pace.decode.let_say(None)
    before = heard.order[: heard.order.index("data")]
    assert before.count("transcript") <= 40 < heard.order.count("transcript") == len(case.said) == 100
    assert heard.error is None
    expect_sound(stages, case, heard.pcm)


async def test_one_thinker_for_all_of_it_says_the_same(stages: Stages, redis_url: str) -> None:
    """Three stages, unsplit: without a prefill engine decode computes the prompts too, and tells them."""
    split = chain_over(
        redis_url, stages.prefill, stages.decode, stages.talker, [stages.code2wav], on_prefill_failure="local"
    )
    async with split as chain:
        await drain(chain.client, stages.prefill.engine)
        whole, before = replace(chain, prefill=None), await _unsplit(chain)
        answers = await asyncio.gather(*(whole.say(case) for case in stages.oracle))
        counted = await _unsplit(chain) - before
    expect_transformers_own(stages, answers)
    assert counted == len(answers)


async def _unsplit(chain: Chain) -> float:
    """Requests so far that decode computed alone for want of a prefill engine."""
    lines = (await chain.client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(NO_PREFILL))


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
