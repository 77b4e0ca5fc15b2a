"""Spoken answers: text and sound on one stream, in OpenAI's order, each sample once."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import pytest

from tests.awaiting import until
from tests.fakes.stages import SAMPLES, TAIL, FakeCode2Wav, FakeTalker, code2wav_server, sound, talker_server
from tests.integration.conftest import Pair, World
from tests.integration.spoken import AUDIO, CHANNEL, Heard, Spoken, spoken_world


@pytest.fixture
async def spoken(world: World) -> Spoken:
    return await spoken_world(world, frames=20)


def request_id(spoken: Spoken) -> str:
    """Of the newest request, as its Talker saw it."""
    return str(spoken.talkers[0].asked[-1]["request_id"]).partition("-")[0]


async def test_text_and_sound_on_one_stream(spoken: Spoken) -> None:
    heard = await spoken.heard(stream_options={"include_usage": True})
    plain = (await spoken.pair.chat(max_tokens=8)).json()
    assert heard.transcript == plain["choices"][0]["message"]["content"]
    assert heard.pcm == sound(42, 20)
    assert len(heard.pcm) == 2 * (20 * SAMPLES - TAIL)
    first, second, *_, third_last, second_last, last = heard.order
    assert (first, second, third_last, second_last, last) == ("role", "transcript", "expires_at", "finish", "usage")
    assert heard.order.index("data") > 1
    assert (len(heard.ids), len(heard.expires_at), heard.finish) == (1, 1, ["length"])
    assert all(event["usage"] is None for event in heard.events if event["choices"] and "usage" in event)
    assert {event["id"] for event in heard.events} == {heard.events[0]["id"]}


async def test_each_piece_of_sound_is_whole_base64_of_whole_samples(spoken: Spoken) -> None:
    heard = await spoken.heard()
    audio = [event["choices"][0]["delta"].get("audio", {}) for event in heard.events]
    pieces = [base64.b64decode(one["data"], validate=True) for one in audio if "data" in one]
    assert all(len(piece) % 6 == 0 for piece in pieces[:-1])
    assert b"".join(pieces) == sound(42, 20)
    assert max(map(len, pieces)) <= 4800


async def test_usage_counts_codec_frames_as_openai_counts_sound(spoken: Spoken) -> None:
    heard = await spoken.heard(stream_options={"include_usage": True})
    plain = (await spoken.pair.chat(max_tokens=8)).json()["usage"]
    assert heard.usage is not None
    assert heard.usage["completion_tokens_details"] == {"audio_tokens": 20, "text_tokens": 8}
    assert heard.usage["completion_tokens"] == plain["completion_tokens"] + 20
    assert heard.usage["total_tokens"] == plain["total_tokens"] + 20
    record = await spoken.pair.record_in("finished", request_id(spoken))
    assert record["usage"] == heard.usage


async def test_the_talker_is_told_where_the_thinkers_tell(spoken: Spoken) -> None:
    sampling = {"temperature": 0.5, "seed": 7, "residual": {"top_p": 0.9}}
    heard = await spoken.heard(audio={"voice": {"id": "CHELSIE"}, "format": "pcm16", "sampling": sampling})
    (asked,) = spoken.talkers[0].asked
    id_ = request_id(spoken)
    assert asked["speaker"] == "chelsie"
    assert {name: asked[name] for name in sampling} == sampling
    legs = ("prefill", "decode")
    assert asked["conditioning"] == [f"{CHANNEL}?request={id_}-1-{leg}&stage=thinker" for leg in legs]
    for engine, leg in zip((spoken.pair.prefill, spoken.pair.decode), legs, strict=True):
        body = engine.calls[-1].body
        assert body["vllm_xargs"] == {"duet_conditioning": f"{id_}-1-{leg}"}
        assert not {"modalities", "audio", "cache_salt"} & set(body)
    assert heard.pcm == sound(7, 20)


async def test_a_request_with_sound_in_it_finds_nothing_in_a_prefix_cache(spoken: Spoken) -> None:
    clip = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, clip]}]
    for _ in range(2):
        await spoken.heard(messages=messages, cache_salt="mine")
    salts = [call.body["cache_salt"] for engine in (spoken.pair.prefill, spoken.pair.decode) for call in engine.calls]
    assert salts[:2] == salts[2:]
    assert len(set(salts)) == 2
    assert all(salt.endswith("-1-speech") for salt in salts)


async def test_a_request_without_sound_is_as_ever(spoken: Spoken) -> None:
    await spoken.pair.chat(cache_salt="mine", vllm_xargs={"duet_conditioning": "another's", "mine": 1})
    await spoken.pair.chat(modalities=["text"])
    first, second = [call.body for call in spoken.pair.decode.calls]
    assert (first["cache_salt"], first["vllm_xargs"]) == ("mine", {"mine": 1})
    assert "vllm_xargs" not in second
    assert spoken.talkers[0].asked == []


async def test_the_requests_seed_is_the_speechs(spoken: Spoken) -> None:
    assert (await spoken.heard(seed=9)).pcm == sound(9, 20)
    assert (await spoken.heard(seed=-1)).error is None
    assert spoken.talkers[0].asked[-1]["seed"] == 2**63 - 1


async def test_sound_comes_while_text_is_still_being_made(world: World) -> None:
    """Decode goes on only when sound has been heard, and the Talker only when text has: neither waits for the other."""
    spoken = await spoken_world(world, frames=30)
    spoken.pair.decode.rule("hang_midway", after=1)
    async with spoken.stream() as (heard, kinds):
        async for kind in kinds:
            if kind == "data":
                break
    assert heard.transcript
    assert "finish" not in heard.order


async def test_text_is_not_held_up_by_sound(world: World) -> None:
    spoken = await spoken_world(world, frames=30)
    await spoken.talkers[0].let_speak(0)
    async with spoken.stream() as (heard, kinds):
        async for _ in kinds:
            if heard.order.count("transcript") == 8:
                break
        await spoken.talkers[0].let_speak(None)
        async for _ in kinds:
            pass
    assert heard.order[:10] == ["role", *["transcript"] * 8, "data"]
    assert heard.pcm == sound(42, 30)


@pytest.mark.parametrize("kind", ["wav", "pcm16", "flac", "mp3", "opus", "aac"])
async def test_a_whole_answer_in_every_format(spoken: Spoken, kind: str) -> None:
    reply = await spoken.asked(audio={"voice": "ethan", "format": kind})
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    message = answer["choices"][0]["message"]
    plain = (await spoken.pair.chat(max_tokens=8)).json()["choices"][0]["message"]
    assert (message["content"], message["audio"]["transcript"]) == (None, plain["content"])
    assert set(message["audio"]) == {"id", "data", "transcript", "expires_at"}
    data = base64.b64decode(message["audio"]["data"])
    assert answer["usage"]["completion_tokens_details"]["audio_tokens"] == 20
    expected = sound(42, 20)
    if kind == "pcm16":
        assert data == expected
    elif kind == "wav":
        with wave.open(io.BytesIO(data)) as file:
            assert file.readframes(file.getnframes()) == expected
    else:
        assert _decoded(data) == pytest.approx(len(expected) // 2, abs=4800)


def _decoded(data: bytes) -> int:
    """Samples at 24 kHz."""
    import av

    with av.open(io.BytesIO(data), "r") as file:
        frames = [frame for frame in file.decode(audio=0) if isinstance(frame, av.AudioFrame)]
    return sum(frame.samples * 24_000 // frame.sample_rate for frame in frames)


async def test_streamed_sound_is_the_whole_answers(spoken: Spoken) -> None:
    whole = await spoken.asked()
    heard = await spoken.heard()
    assert base64.b64decode(whole.json()["choices"][0]["message"]["audio"]["data"]) == heard.pcm


async def test_an_answer_without_a_frame_has_no_sound(world: World) -> None:
    spoken = await spoken_world(world, frames=0)
    heard = await spoken.heard()
    assert (heard.pcm, len(heard.ids), len(heard.expires_at), heard.error) == (b"", 1, 1, None)
    assert (await spoken.pair.record_in("finished", request_id(spoken)))["speech"] == "done"


async def test_a_later_message_refers_to_an_answer(spoken: Spoken) -> None:
    heard = await spoken.heard()
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "audio": {"id": heard.ids[0]}},
        {"role": "user", "content": "And then?"},
    ]
    assert (await spoken.pair.chat(messages=turns)).status_code == 200
    said = spoken.pair.decode.calls[-1].body["messages"]
    assert said == [turns[0], {"role": "assistant", "content": heard.transcript}, turns[2]]
    other = await spoken.pair.chat(messages=[turns[0], {"role": "assistant", "audio": {"id": "audio_none"}}])
    assert (other.status_code, other.json()["error"]["code"]) == (404, "audio_not_found")
    assert other.json()["error"]["param"] == "messages[1].audio.id"


async def test_references_stand_for_no_more_than_a_body_may_have(world: World) -> None:
    spoken = await spoken_world(world, frames=2, max_body_bytes=700)
    heard = await spoken.heard(max_tokens=100)
    assert 350 < len(heard.transcript.encode()) <= 700, "one is taken, two are not"
    for times, status in ((1, 200), (2, 413)):
        messages = [{"role": "assistant", "audio": {"id": heard.ids[0]}}] * times
        reply = await spoken.asked(messages=messages)
        assert reply.status_code == status, reply.text
    assert reply.json()["error"]["param"] == "messages[1].audio.id"


async def test_what_an_answer_said_is_forgotten_when_it_says_so(world: World) -> None:
    spoken = await spoken_world(world, frames=2, audio_ttl=0.05)
    heard = await spoken.heard()
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "audio": {"id": heard.ids[0]}}]

    async def gone() -> bool:
        return (await spoken.pair.chat(messages=turns)).status_code == 404

    await until(gone, "the transcript is gone")


async def test_the_record_has_the_speech(spoken: Spoken) -> None:
    await spoken.heard()
    record = await spoken.pair.record_in("finished", request_id(spoken))
    assert record["speech"] == "done"
    assert record["talker"] == spoken.talkers[0].url.removeprefix("http://")
    assert record["code2wav"] == spoken.code2wavs[0].url.removeprefix("http://")
    assert len(record["conditioning"]) == 2
    assert "first_audio" in record["timings"]
    told = [event["event"] for event in record["events"]]
    assert told[-3:] == ["speech_started", "speech_done", "completed"]
    assert (await spoken.pair.record(await spoken.pair.chat()))["speech"] == "off"


async def test_it_is_measured(spoken: Spoken) -> None:
    await spoken.heard()
    assert await spoken.pair.metric("duet_speech_total") == 1
    assert await spoken.pair.metric("duet_audio_bytes_total") == len(sound(42, 20))
    assert await spoken.pair.metric("duet_first_audio_seconds_count") == 1


async def test_an_unsplit_answer_is_spoken_too(world: World) -> None:
    spoken = await spoken_world(world, frames=20, on_prefill_failure="local")
    spoken.pair.prefill.rule("status", status=500)
    heard = await spoken.heard()
    (asked,) = spoken.talkers[0].asked
    assert asked["conditioning"] == [f"{CHANNEL}?request={request_id(spoken)}-2-decode&stage=thinker"]
    assert heard.pcm == sound(42, 20)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"audio": None}, "audio"),
        ({"audio": {"voice": "ethan"}}, "audio"),
        ({"audio": {"voice": "alloy", "format": "pcm16"}}, "audio.voice"),
        ({"audio": {"voice": "ethan", "format": "midi"}}, "audio.format"),
        ({"audio": {"voice": "ethan", "format": "wav"}, "stream": True}, "audio.format"),
        ({"audio": {"voice": "ethan", "format": "wav", "speed": 2}}, "audio"),
        ({"audio": {"voice": "ethan", "format": "wav", "sampling": {"seed": -1}}}, "audio.sampling.seed"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"modalities": "audio"}, "modalities"),
        ({"modalities": ["text"]}, "audio"),
        ({"n": 2}, "n"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"stop": "END"}, "stop"),
        ({"stop": ["END"]}, "stop"),
        ({"vllm_xargs": [1]}, "vllm_xargs"),
    ],
)
async def test_what_cannot_be_spoken_is_refused(spoken: Spoken, fields: dict[str, Any], param: str) -> None:
    reply = await spoken.asked(**fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text
    assert spoken.talkers[0].asked == []
    assert spoken.pair.prefill.calls == []


@pytest.mark.parametrize("fields", [{"stop": []}, {"stop": None}, {"stop_token_ids": [0]}])
async def test_what_ends_no_answer_in_mid_text_can_be_spoken(spoken: Spoken, fields: dict[str, Any]) -> None:
    assert (await spoken.asked(**fields)).status_code == 200


async def test_a_gateway_without_talkers_refuses_sound(pair: Pair) -> None:
    reply = await pair.chat(text="hello", **AUDIO)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "audio_unsupported")
    reply = await pair.complete(**AUDIO)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "modalities")
    assert pair.prefill.calls == []


async def test_a_talker_whose_voices_are_not_known_yet_makes_no_request_wrong(world: World) -> None:
    await world.engines(channel=CHANNEL)
    talker = await world.enter(talker_server(FakeTalker(speakers=())))
    code2wav = await world.enter(code2wav_server(FakeCode2Wav()))
    pair = await world.gateway(talkers=(talker.url,), code2wavs=(code2wav.url,))
    reply = await pair.chat(**AUDIO)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "no_routable_engine"), reply.text
    assert "voices" in reply.json()["error"]["message"]


async def test_thinkers_that_tell_nothing_are_not_asked_to_be_spoken(world: World) -> None:
    spoken = await spoken_world(world, engines={"channel": None})
    reply = await spoken.asked()
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "no_routable_engine")
    assert "tells a Talker" in reply.json()["error"]["message"]
    assert (await spoken.pair.chat()).status_code == 200


async def test_talkers_are_no_models(spoken: Spoken) -> None:
    assert [m["id"] for m in (await spoken.pair.client.get("/v1/models")).json()["data"]] == ["sim"]
    roles = [e["role"] for e in (await spoken.pair.client.get("/admin/topology")).json()["engines"]]
    assert sorted(roles) == ["code2wav", "decode", "prefill", "talker"]


async def test_a_slow_client_holds_the_sound_back(world: World) -> None:
    """What it does not read is not read from Code2Wav either, and it gets all of it in the end."""
    spoken = await spoken_world(world, frames=1500)
    heard = Heard()
    body = spoken.body(stream=True)
    async with spoken.pair.client.stream("POST", "/v1/chat/completions", json=body) as reply:

        async def stuck() -> bool:
            made = await spoken.pair.metric("duet_audio_bytes_total")
            return 0 < made == await spoken.pair.metric("duet_audio_bytes_total")

        await until(stuck, "no more sound is taken", within=10)
        assert await spoken.pair.metric("duet_audio_bytes_total") < len(sound(42, 1500))
        async for line in reply.aiter_lines():
            if line:
                heard.take(line)
    assert heard.pcm == sound(42, 1500)


async def test_any_replica_knows_what_was_said(world: World) -> None:
    spoken = await spoken_world(world, frames=3)
    other = await world.gateway()
    heard = await spoken.heard()
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "audio": {"id": heard.ids[0]}}]
    assert (await other.chat(messages=[*turns, turns[0]])).status_code == 200
    assert spoken.pair.decode.calls[-1].body["messages"][1]["content"] == heard.transcript
