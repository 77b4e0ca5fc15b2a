"""Speech when something is lost: another engine goes on from the very sample, or the text ends well and says so."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.store.keys import Keys
from tests.awaiting import until
from tests.fakes.stages import FakeCode2Wav, FakeTalker, code2wav_server, sound, talker_server
from tests.integration.conftest import World
from tests.integration.spoken import CHANNEL, Heard, Spoken, spoken_world
from tests.redis_server import keys_under

FRAMES = 40
WHOLE = sound(42, FRAMES)


async def record_of(spoken: Spoken, state: str = "finished") -> dict[str, Any]:
    newest = (await spoken.pair.client.get("/admin/requests")).json()["requests"][0]
    return await spoken.pair.record_in(state, newest["id"])


def calls(spoken: Spoken) -> tuple[int, int]:
    """How often any Talker, and any Code2Wav, was asked."""
    return sum(len(t.asked) for t in spoken.talkers), sum(len(c.asked) for c in spoken.code2wavs)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("at", [0, 17])
async def test_another_talker_goes_on(world: World, at: int, stream: bool) -> None:
    spoken = await spoken_world(world, frames=FRAMES, talkers=2)
    spoken.talkers[0].breaks_at = at
    for _ in range(2):
        if stream:
            heard = await spoken.heard()
            assert (heard.error, heard.pcm) == (None, WHOLE)
        else:
            answer = (await spoken.asked()).json()
            assert base64.b64decode(answer["choices"][0]["message"]["audio"]["data"]) == WHOLE
    retries = await spoken.pair.metric("duet_speech_retries_total")
    assert retries >= 1, "equals take turns: one of the two at least began with the Talker that dies"
    assert calls(spoken)[0] == 2 + retries


@pytest.mark.parametrize("after", [1, 5000, 40_000])
async def test_another_code2wav_goes_on(world: World, after: int) -> None:
    spoken = await spoken_world(world, frames=FRAMES, code2wavs=2)
    spoken.code2wavs[0].breaks_after = after
    for _ in range(2):
        heard = await spoken.heard()
        assert (heard.error, heard.pcm) == (None, WHOLE)
    retries = await spoken.pair.metric("duet_speech_retries_total")
    again = 1 if after > 1 else 0  # who breaks off in mid-sound is asked once more, and here may come to the end then
    assert calls(spoken)[0] == 2, "the codes that there are were enough"
    assert 2 + retries <= calls(spoken)[1] <= 2 + retries + 2 * again
    assert retries + again >= 1
    record = await record_of(spoken)
    assert record["speech"] == "done"


@pytest.mark.parametrize("after", [1, 40_000])
async def test_a_code2wav_that_ends_as_if_that_were_all_is_found_out(world: World, after: int) -> None:
    spoken = await spoken_world(world, frames=FRAMES, code2wavs=2)
    spoken.code2wavs[0].ends_after = after
    for _ in range(2):
        heard = await spoken.heard()
        assert (heard.error, heard.pcm) == (None, WHOLE)
    assert await spoken.pair.metric("duet_speech_retries_total") >= 1


@pytest.mark.parametrize("who", ["talker", "code2wav"])
async def test_all_speeches_of_an_engine_that_dies_go_on(world: World, who: str) -> None:
    """More of them than the retry budget has for requests that begin."""
    many = 30
    await world.engines(channel=CHANNEL)
    async with AsyncExitStack() as dying:
        talkers = [await world.enter(talker_server(FakeTalker(frames=FRAMES)))]
        code2wavs = [await world.enter(code2wav_server(FakeCode2Wav()))]
        if who == "talker":
            talkers.append(await dying.enter_async_context(talker_server(FakeTalker(frames=FRAMES))))
        else:
            code2wavs.append(await dying.enter_async_context(code2wav_server(FakeCode2Wav())))
        urls = {"talkers": tuple(t.url for t in talkers), "code2wavs": tuple(c.url for c in code2wavs)}
        spoken = Spoken(await world.gateway(retry_share=0.0, retry_floor=0, **urls), talkers, code2wavs)
        for talker in talkers:
            await talker.let_speak(12)
        async with AsyncExitStack() as open_:
            streams = [await open_.enter_async_context(spoken.stream()) for _ in range(many)]
            for heard, kinds in streams:
                async for _ in kinds:
                    if heard.base64:
                        break
            await dying.aclose()
            await talkers[0].let_speak(None)
            for talker in talkers:
                await talker.let_speak(None)
            for heard, kinds in streams:
                async for _ in kinds:
                    pass
                assert (heard.error, heard.pcm) == (None, WHOLE)
        assert await spoken.pair.metric("duet_speech_retries_total") >= many / 3


async def test_resuming_is_told(world: World) -> None:
    spoken = await spoken_world(world, frames=FRAMES, code2wavs=2)
    for code2wav in spoken.code2wavs[:1]:
        code2wav.breaks_after = 9000
    await spoken.heard()
    await spoken.heard()
    records = (await spoken.pair.client.get("/admin/requests")).json()["requests"]
    told = [[e["event"] for e in (await spoken.pair.record_in("finished", r["id"]))["events"]] for r in records]
    assert sum("speech_resumed" in events for events in told) == await spoken.pair.metric("duet_speech_retries_total")


@pytest.mark.parametrize("who", ["talker", "code2wav"])
async def test_with_nobody_left_the_text_is_whole_and_the_error_said(world: World, who: str) -> None:
    spoken = await spoken_world(world, frames=FRAMES)
    if who == "talker":
        spoken.talkers[0].breaks_at = 17
    else:
        spoken.code2wavs[0].breaks_after = 9000
    heard = await spoken.heard(stream_options={"include_usage": True})
    record = await record_of(spoken)
    plain = (await spoken.pair.chat(max_tokens=8)).json()
    assert heard.transcript == plain["choices"][0]["message"]["content"]
    assert heard.order[-3:] == ["finish", "usage", "error"]
    assert heard.error is not None
    assert heard.error["code"] == "speech_failed"
    assert WHOLE.startswith(heard.pcm)
    assert (record["speech"], record["error"]["code"]) == ("failed", "speech_failed")
    assert await spoken.pair.metric("duet_errors_total") == 1


async def test_a_whole_answer_without_its_sound_is_an_error(world: World) -> None:
    spoken = await spoken_world(world, frames=FRAMES)
    spoken.talkers[0].breaks_at = 17
    reply = await spoken.asked()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "speech_failed")
    assert (await record_of(spoken, "failed"))["speech"] == "failed"


async def test_a_policy_may_forbid_it(world: World) -> None:
    spoken = await spoken_world(world, frames=FRAMES, talkers=2, on_speech_failure="fail")
    for talker in spoken.talkers:
        talker.breaks_at = 3
    heard = await spoken.heard()
    assert heard.error is not None
    assert calls(spoken)[0] == 1


@pytest.mark.parametrize(
    ("status", "code", "asked"),
    [(400, "speech_unsupported", 1), (502, "thinker_lost", 1), (500, "speech_failed", 2)],
)
async def test_what_another_talker_could_not_do_either_is_not_asked_again(
    world: World, status: int, code: str, asked: int
) -> None:
    spoken = await spoken_world(world, frames=FRAMES, talkers=2)
    for talker in spoken.talkers:
        talker.refuses = status, {"message": "no", "type": "x", "param": None, "code": code}
    heard = await spoken.heard()
    assert heard.transcript
    assert heard.error is not None
    assert "no" in heard.error["message"]
    assert calls(spoken)[0] == asked


async def test_a_decode_that_fails_after_its_first_word_ends_the_speech(world: World) -> None:
    spoken = await spoken_world(world, frames=FRAMES)
    await spoken.talkers[0].let_speak(5)
    spoken.pair.decode.rule("drop_midway", after=2)
    heard = await spoken.heard()
    assert heard.error is not None
    assert heard.error["code"] == "engine_broken"
    await until(lambda: _true(spoken.talkers[0].left), "the Talker sees its client leave")
    assert (await record_of(spoken, "failed"))["speech"] == "failed"


async def test_a_further_attempt_is_spoken_anew(world: World) -> None:
    spoken = await spoken_world(world, frames=FRAMES)
    spoken.pair.decode.rule("drop", on="decode")
    heard = await spoken.heard()
    assert heard.pcm == WHOLE
    ids = [ask["request_id"].split("-")[1] for ask in spoken.talkers[0].asked]
    assert ids[-1] == "2"
    assert set(ids) <= {"1", "2"}


LEFT_AT = {"before its sound": 0, "in mid-sound": 12}


@pytest.mark.parametrize("how", ["client", "operator", "both"])
@pytest.mark.parametrize("frames", LEFT_AT.values(), ids=list(LEFT_AT))
async def test_all_stages_end_when_nobody_wants_them(world: World, how: str, frames: int) -> None:
    spoken = await spoken_world(world, frames=FRAMES)
    talker, code2wav = spoken.talkers[0], spoken.code2wavs[0]
    await talker.let_speak(frames)
    spoken.pair.decode.rule("hang_midway", after=1)
    heard = Heard()
    async with spoken.pair.client.stream("POST", "/v1/chat/completions", json=spoken.body(stream=True)) as reply:
        lines = reply.aiter_lines()
        async for line in lines:
            if line and heard.take(line) == ("data" if frames else "transcript"):
                break
        await until(lambda: _true(code2wav.asked), "Code2Wav is asked")
        id_ = talker.asked[0]["request_id"].partition("-")[0]
        cancel = spoken.pair.client.delete(f"/admin/requests/{id_}")
        if how == "both":
            await asyncio.gather(cancel, reply.aclose())
        elif how == "operator":
            assert (await cancel).json()["state"] == "cancelled"
            heard_more = [heard.take(line) async for line in lines if line]
            assert heard_more[-2:] == ["error", "done"]
        else:
            cancel.close()
    await until(lambda: _true(talker.left and code2wav.left), "both saw their client leave")
    await until(lambda: _true(spoken.pair.decode.calls[0].end == "client left"), "so did decode")
    record = await record_of(spoken, "cancelled")
    assert record["speech"] == "failed"

    async def empty() -> bool:
        loads = [e["load"] for e in (await spoken.pair.client.get("/admin/topology")).json()["engines"]]
        return loads == [0, 0, 0, 0] and await spoken.pair.metric("duet_requests_in_flight") == 0

    await until(empty, "no engine counts the request any more")
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in names if "speech" in name]
    await expect_its_record_alone_is_left(spoken, record["id"])


async def expect_its_record_alone_is_left(spoken: Spoken, id_: str) -> None:
    """Of one request that has ended: no claim, no place on an engine, no sound to refer to; and every key has its
    end."""
    prefix, url = spoken.pair.settings.redis_prefix, spoken.pair.settings.redis_url
    assert url is not None
    async with Redis.from_url(url.get_secret_value(), decode_responses=True) as redis:
        keys = await keys_under(redis, prefix)
        assert {key for key in keys if id_ in key} == {Keys(prefix).request(id_), Keys(prefix).events(id_)}
        kinds = {key.removeprefix(prefix).partition(":")[0] for key in keys}
        assert kinds - {"leases", "orders"} == {"request", "events", "feed", "recent"}
        assert {key: ttl for key in keys if (ttl := await redis.pttl(key)) <= 0} == {}


async def _true(value: Any) -> bool:
    return bool(value)
