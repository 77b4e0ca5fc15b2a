"""Prefill and decode on two engines, a Talker, Code2Wav: what is said, spoken and heard is transformers' own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import httpx
import pytest

from common.channel import Publisher, Puller, StreamFailed
from common.channel.reference import Key
from common.conditioning import STAGE, frame_rows, read
from tests.contract.talker.oracle import Case
from tests.e2e.speech.asking import (
    GREEDY,
    PREFILLS,
    Answer,
    answer,
    codes_of,
    frames_of,
    hear,
    leg,
    speaking,
    spoken,
)
from tests.e2e.speech.stages import Stage, Stages
from tests.e2e.speech.telling import tell

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

KEY = Key("by-hand", STAGE)
CLOSE = 1e-3
"""Of full scale."""
SOUND = 4
"""The first of the cases with sound."""
MOST = 1900
"""Tokens of an answer that nobody waits for: as many as the context has room for, so that they take long."""


@contextmanager
def by_hand(case: Case, said: int) -> Iterator[tuple[Publisher, dict[str, Any]]]:
    """A Thinker that has told its prompt and so many tokens, and what to ask a Talker that listens to it."""
    with Publisher() as thinker:
        thinker.publish(KEY, frame_rows(len(case.prompt), 0, case.prompt))
        tell(thinker, KEY, case, 0, said)
        yield thinker, {"conditioning": [str(thinker.reference(KEY))], **GREEDY}


async def test_tokens_and_codes_are_transformers_own(stages: Stages) -> None:
    """All ten at once; speech begins while the Thinker decodes."""
    asked = (answer(stages, case, f"all-{at}") for at, case in enumerate(stages.oracle))
    answers: list[Answer] = await asyncio.gather(*asked)
    told = {at: (got.prompt, got.said) for at, got in enumerate(answers)}
    assert told == {at: (case.prompt, case.said) for at, case in enumerate(stages.oracle)}
    assert {at: got.codes for at, got in enumerate(answers)} == {at: c.codes for at, c in enumerate(stages.oracle)}
    for got, case in zip(answers, stages.oracle, strict=True):
        assert len(got.heard) == len(case.codes) * 1920 - 555
        first, last = got.events[0], got.events[-1]
        assert (first["type"], last["type"], last["frames"]) == ("started", "done", len(case.codes))
        counts = [event["frames"] for event in got.events if event["type"] == "frames"]
        assert counts == sorted(set(counts))


async def test_what_is_heard_is_one_full_pass_over_the_codes(stages: Stages) -> None:
    """While the codes are made, in chunks; and again from the stream of codes that is whole by now."""
    import numpy as np

    async def heard(at: int, case: Case) -> Any:
        return (await answer(stages, case, f"heard-{at}")).heard

    all_heard = await asyncio.gather(*(heard(at, case) for at, case in enumerate(stages.oracle)))
    joined = 0
    for case, sound in zip(stages.oracle, all_heard, strict=True):
        whole = stages.whole(case.codes)
        assert len(sound) == len(whole) == len(case.codes) * 1920 - 555
        assert np.isfinite(sound).all()
        assert np.abs(sound - whole).max() < CLOSE
        assert whole.std() > 0.05, "silence would be equal too"
        joins = [frames * 1920 - 555 - 1 for frames in range(4, len(case.codes), 25)]
        jumps, full = np.abs(np.diff(sound)), np.abs(np.diff(whole))
        joined += len(joins)
        assert not joins or np.abs(jumps[joins] - full[joins]).max() < 2 * CLOSE
    assert joined >= len(stages.oracle)
    rest = await hear(stages, stages.talker.stream(f"heard-{SOUND}", "talker"), from_sample=9001)
    assert len(rest) == len(all_heard[SOUND]) - 9001
    assert np.abs(rest - all_heard[SOUND][9001:]).max() < CLOSE


async def test_every_stage_tells_who_it_is_and_where_it_publishes(stages: Stages) -> None:
    expected = {"prefill": "thinker", "decode": "thinker", "talker": "talker", "code2wav": "code2wav"}
    told = {}
    async with httpx.AsyncClient(timeout=60) as client:
        for name in expected:
            stage = getattr(stages, name)
            engine = stage.engine if isinstance(stage, Stage) else stage
            told[name] = (await client.get(f"{engine.url}/duet/identity")).json()
            channel = f"duet+{stage.channel}" if isinstance(stage, Stage) else None
            assert told[name].get("channel") == channel
    assert [name for name in told if "speakers" in told[name]] == ["talker"]
    assert {name: identity["stage"] for name, identity in told.items()} == expected
    assert {identity["model"] for identity in told.values()} == {"tiny"}
    assert len({frozenset(identity) - {"channel", "speakers"} for identity in told.values()}) == 1, (
        "all have the same fields"
    )


async def test_what_the_thinkers_told_is_what_was_computed(stages: Stages) -> None:
    import torch

    from common.conditioning import MEDIA
    from engines.channel import to_tensor

    case = stages.oracle[SOUND]
    got = await answer(stages, case, "told")
    prefill = [read(frame) for frame in await frames_of(got.prefill)]
    decode = [read(frame) for frame in await frames_of(got.decode)]
    assert [token for told in prefill for token in told.ids] == case.prompt
    assert [token for told in decode for token in told.ids] == [*case.prompt, *case.said[:-1]]
    assert not any(told.media_at for told in decode)
    assert [at for told in prefill for at in told.media_at] == case.media_at
    rows = torch.cat([to_tensor(told.rows[MEDIA]) for told in prefill if told.media_at])
    torch.testing.assert_close(rows, torch.tensor(case.media), atol=1e-4, rtol=1e-4)


async def test_decode_tells_each_token_as_it_is_computed(stages: Stages) -> None:
    """Of 1,900 tokens its client stays for fifty. Those were told while it waited for its answer, and what was never
    computed is not told: there was no end to wait for."""
    case, said = stages.long[0], list[int]()
    prefilled = await leg(stages.prefill, case.messages, "each-p", 1, PREFILLS)
    kv = prefilled["kv_transfer_params"]
    reply = asyncio.create_task(leg(stages.decode, case.messages, "each-d", MOST, kv, ignore_eos=True))
    stream = stages.decode.stream("each-d", STAGE)
    async with Puller(lost_after=60.0) as puller, aclosing(puller.frames(stream)) as frames:
        async for frame in frames:
            told = read(frame)
            if told.begin == 0:
                assert list(told.ids) == case.prompt
                continue
            assert len(told.ids) == 1, "a frame a step"
            said += told.ids
            if len(said) == 50:
                assert not reply.done()
                reply.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reply
    assert said[:50] == case.said[:50]
    assert 50 <= len(said) < MOST - 1


async def test_a_seed_is_the_same_speech_and_resumes_by_index(stages: Stages) -> None:
    """What a second Talker does that takes over: the conditioning is still there, and the codes are the same again."""
    case = stages.oracle[SOUND]
    freely = {"temperature": 0.9, "seed": 11, "max_frames": 20}
    got = await answer(stages, case, "seeded", **freely)
    again = {"conditioning": [str(got.prefill), str(got.decode)], **GREEDY, **freely}
    for name, seed, same in (("again", 11, True), ("other", 12, False)):
        await spoken(stages.talker, {"request_id": name, **again, "seed": seed})
        assert (await codes_of(stages.talker.stream(name, "talker")) == got.codes) is same


async def test_speech_begins_before_the_text_ends(stages: Stages) -> None:
    """The test is the Thinker: it goes on with its text only when a frame of it has been spoken."""
    case = stages.oracle[0]
    with by_hand(case, 2) as (thinker, body):
        async with speaking(stages.talker, {**body, "request_id": "early"}) as events:
            async for event in events:
                if event == {"type": "frames", "frames": 1}:
                    tell(thinker, KEY, case, 2)
                    thinker.close(KEY)
    assert event["type"] == "done"
    assert await codes_of(stages.talker.stream("early", "talker")) == case.codes


async def test_a_thinker_that_dies_in_mid_speech_is_told(stages: Stages) -> None:
    with by_hand(stages.oracle[0], 2) as (thinker, body):
        async with speaking(stages.talker, {**body, "request_id": "orphan"}) as events:
            async for event in events:
                if event["type"] == "frames":
                    thinker.close(KEY, "it burnt")
    assert (event["type"], event["error"]["code"]) == ("error", "thinker_lost")
    assert "it burnt" in event["error"]["message"]
    with pytest.raises(StreamFailed, match="it burnt"):
        await codes_of(stages.talker.stream("orphan", "talker"))


async def test_a_client_that_leaves_ends_its_speech(stages: Stages) -> None:
    with by_hand(stages.oracle[0], 2) as (thinker, body):
        async with speaking(stages.talker, {**body, "request_id": "left"}) as events:
            async for event in events:
                if event["type"] == "frames":
                    break
        with pytest.raises(StreamFailed, match="cancelled"):
            await codes_of(stages.talker.stream("left", "talker"))
        thinker.close(KEY)
        await spoken(stages.talker, {**body, "request_id": "next", "max_frames": 2})  # so that there are new figures
    async with httpx.AsyncClient(timeout=60) as client:
        metrics = (await client.get(f"{stages.talker.engine.url}/metrics")).text
    running = [line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running{")]
    assert [float(line.rsplit(" ", 1)[1]) for line in running] == [0.0]


async def test_an_answer_of_one_token_is_silence(stages: Stages) -> None:
    with by_hand(stages.oracle[0], 0) as (thinker, body):
        thinker.close(KEY)
        events = await spoken(stages.talker, {**body, "request_id": "silent"})
    assert events[1:] == [{"type": "done", "frames": 0, "reason": "stop"}]
    assert await codes_of(stages.talker.stream("silent", "talker")) == []


async def test_a_lost_thinker_is_told_and_harms_nobody(stages: Stages) -> None:
    nowhere = "duet+ipc:///nowhere/rows?request=x&stage=thinker"
    async with httpx.AsyncClient(timeout=60) as client:
        asked = client.post(
            f"{stages.talker.engine.url}/v1/speech", json={"request_id": "lost", "conditioning": [nowhere]}
        )
        reply, got = await asyncio.gather(asked, answer(stages, stages.oracle[0], "beside"))
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "thinker_lost"
    assert got.codes == stages.oracle[0].codes


async def test_vllms_own_endpoints_have_nothing_to_speak(stages: Stages) -> None:
    url = stages.talker.engine.url
    async with httpx.AsyncClient(timeout=60) as client:
        asked = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 2}
        assert (await client.post(f"{url}/v1/completions", json=asked)).status_code >= 400
        assert (await client.get(f"{url}/health")).status_code == 200


async def test_what_is_no_speech_is_refused(stages: Stages) -> None:
    url = stages.talker.engine.url
    stream = str(stages.prefill.stream("x", "thinker"))
    async with httpx.AsyncClient(timeout=60) as client:
        speaker = {"request_id": "s", "conditioning": [stream], "speaker": "nobody"}
        for body, field in (({}, "request_id"), (speaker, "speaker")):
            reply = await client.post(f"{url}/v1/speech", json=body)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)
        assert (await client.get(f"{url}/health")).status_code == 200
