"""Speech over fakes: what becomes of it when the answer calls a tool, when the store is away, when time runs out."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import BadRequest, NoRoutableEngine, PayloadTooLarge
from gateway.dispatch.speech.ask import MAX_FRAMES, Ask
from gateway.dispatch.speech.errors import SpeechRefused
from gateway.dispatch.speech.memory import recall
from gateway.dispatch.speech.speech import SAME_FAULT_WITHIN
from gateway.dispatch.speech.vocode import RATE, SAMPLES_PER_FRAME, TAIL
from gateway.lifecycle import Speech, State
from gateway.wire import parse
from tests.fakes.script import CUT, Part, Script, Seen, json_reply, sse_reply
from tests.unit.gateway.coordinating import DECODE, PREFILL, KeptSink, Rig, prefilled, until

CHAT = "/v1/chat/completions"
TALKER = Engine.at("http://127.0.0.1:8300", Role.TALKER)
CODE2WAV = Engine.at("http://127.0.0.1:8400", Role.CODE2WAV)
TALKER_2 = Engine.at("http://127.0.0.1:8301", Role.TALKER)
CODE2WAV_2 = Engine.at("http://127.0.0.1:8401", Role.CODE2WAV)
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
PCM = bytes(range(240)) * 30
PER_FRAME = len(PCM) // 2 // 3
"""Samples: three frames are all of it."""


def rig(further: Sequence[Engine] = (), **over: Any) -> Rig:
    heard = [replace(engine, channel="duet+ipc:///rows") for engine in (PREFILL, DECODE)]
    made = Rig(engines=(*heard, TALKER, CODE2WAV, *further), **over)
    for member in made.fleet.members.values():
        member.speakers = ("ethan",) if member.engine.role is Role.TALKER else None
    made.client.on(leg="prefill", reply=prefilled())
    return made


def talked(*parts: Part, frames: int = 3) -> Script:
    started = {"type": "started", "codes": "duet+ipc:///codes?request=r&stage=talker", "prompt_tokens": 9}
    return sse_reply(started, {"type": "frames", "frames": 1}, *parts, {"type": "done", "frames": frames})


def sounded(*parts: Part, **headers: str) -> Script:
    told = {RATE: "24000", SAMPLES_PER_FRAME: str(PER_FRAME), TAIL: "0", **headers}
    return Script(parts, headers={name: value for name, value in told.items() if value != "left out"})


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "d", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def text(*parts: Any) -> Script:
    return sse_reply(chunk({"role": "assistant", "content": ""}), *parts, chunk({"content": ""}, "stop"))


def heard(sink: KeptSink) -> bytes:
    """All sound of a stream."""
    events = [json.loads(line.removeprefix(b"data: ")) for line in sink.body.split(b"\n\n") if b"{" in line]
    deltas = [choice["delta"] for event in events for choice in event.get("choices", ())]
    return base64.b64decode("".join(delta.get("audio", {}).get("data", "") for delta in deltas))


async def ask(
    made: Rig,
    *,
    stream: bool = True,
    sink: KeptSink | None = None,
    kind: str = "pcm16",
    request_id: str = "r1",
    **fields: Any,
) -> KeptSink:
    sink = sink if sink is not None else KeptSink()
    audio = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": kind}}
    body = {"model": "m", "messages": [], "stream": stream, **audio, **fields}
    await made.coordinator.run(request_id, parse(CHAT, json.dumps(body).encode()), sink)
    return sink


async def heard_first(made: Rig, gate: asyncio.Event) -> KeptSink:
    """A whole answer; `gate` opens once some sound of it has been heard."""
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink))
    await until(lambda: b'"data"' in sink.body)
    gate.set()
    await asked
    return sink


async def speech_of(made: Rig) -> Speech:
    await made.coordinator.drain()
    kept = await made.store.get("r1")
    assert kept is not None
    return kept.speech


async def test_an_answer_that_calls_a_tool_is_not_spoken_on() -> None:
    made = rig()
    call = {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f"}}]}
    never = asyncio.Event()
    made.client.on("/v1/speech", reply=talked(never))
    made.client.on("/v1/code2wav", reply=Script([never]))
    made.client.on(leg="decode", reply=text(chunk(call)))
    sink = await ask(made)
    assert b'"tool_calls"' in sink.body
    assert b'"audio"' not in sink.body
    assert b"error" not in sink.body
    assert all(seen.left.is_set() for seen in made.client.posts if seen.path in ("/v1/speech", "/v1/code2wav"))
    assert await speech_of(made) is Speech.DONE
    assert made.loads() == [0, 0, 0, 0]


@pytest.mark.parametrize("stream", [True, False])
async def test_decode_is_free_for_others_while_its_answer_is_spoken(stream: bool) -> None:
    made, gate = rig(), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(gate))
    made.client.on("/v1/code2wav", reply=sounded(PCM[:-2], gate, PCM[-2:]))
    message = {"role": "assistant", "content": "hi"}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})) if stream else json_reply(answer))
    asked = asyncio.ensure_future(ask(made, stream=stream))
    await until(lambda: made.loads() == [0, 0, 1, 1])
    for _ in range(20):  # until that is written
        await asyncio.sleep(0)
    assert await made.store.loads([DECODE.id, TALKER.id]) == {DECODE.id: 0, TALKER.id: 1}
    gate.set()
    assert b"error" not in (await asked).body
    await made.coordinator.drain()
    assert made.loads() == [0, 0, 0, 0]


async def test_a_whole_answer_that_calls_a_tool_is_as_it_came() -> None:
    made = rig()
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    made.client.on(leg="decode", reply=json_reply(answer))
    sink = await ask(made, stream=False)
    assert json.loads(sink.body) == answer


async def test_without_a_store_the_answer_is_not_promised_to_be_remembered() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    gate = asyncio.Event()
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), gate))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink))
    await until(lambda: b"hi" in sink.body)
    made.store.available = False
    gate.set()
    await until(lambda: b"expires_at" in sink.body)
    await asked
    made.store.available = True
    assert f'"expires_at":{int(made.clock.now())}'.encode() in sink.body
    assert made.count("duet_store_errors_total", op="keep") == 1
    assert (await made.store.transcripts([])) == {}


@pytest.mark.parametrize("part", [b"\0", CUT])
async def test_half_a_sample_is_a_failure_and_so_is_half_an_answer(part: Part) -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM, part))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"code":"speech_failed"' in sink.body
    assert sink.body.endswith(b"data: [DONE]\n\n")
    assert await speech_of(made) is Speech.FAILED
    kept = await made.store.get("r1")
    assert kept is not None
    assert kept.state is State.FINISHED


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"type": "frames", "frames": 1}],
        [{"type": "started", "codes": "", "prompt_tokens": 1}],
        [{"kind": "started"}],
        [{"type": "started", "codes": "duet+ipc:///c?request=r&stage=talker", "prompt_tokens": 1}],
    ],
    ids=["nothing", "no beginning", "no codes", "no event", "no end"],
)
async def test_a_talker_that_does_not_keep_to_its_words(events: list[Any]) -> None:
    made = rig()
    made.client.on("/v1/speech", reply=sse_reply(*events))
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"code":"speech_failed"' in sink.body
    assert made.loads() == [0, 0, 0, 0]


async def test_a_talker_that_goes_silent_is_given_up_and_the_text_is_whole() -> None:
    made = rig(idle=0.05)
    made.client.on("/v1/speech", reply=talked(asyncio.Event()))
    made.client.on("/v1/code2wav", reply=sounded(asyncio.Event()))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"transcript":"hi"' in sink.body
    assert f"engine {TALKER.id} was silent in mid-speech for more than 0.05 s".encode() in sink.body


@pytest.mark.parametrize("stream", [True, False])
async def test_a_slow_text_is_no_silence_of_its_speech(stream: bool) -> None:
    """No Talker can tell a frame, and no Code2Wav make a sound, of what has not been said."""
    made = rig(idle=0.05, first_token=60.0)
    said, frame = asyncio.Event(), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(frame))
    made.client.on("/v1/code2wav", reply=sounded(frame, PCM))
    message = {"role": "assistant", "content": "hi"}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    whole = Script([said, *json_reply(answer).parts])
    made.client.on(leg="decode", reply=text(said, chunk({"content": "hi"})) if stream else whole)
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, stream=stream, sink=sink, kind="pcm16"))
    await until(lambda: any(seen.path == "/v1/code2wav" for seen in made.client.posts))
    await asyncio.sleep(0.3)
    frame.set()
    said.set()
    await asked
    assert b"error" not in sink.body
    assert await speech_of(made) is Speech.DONE


async def test_a_slow_talker_is_no_silence_of_code2wav() -> None:
    """Its first sound wants several frames: while they come it is not late."""
    made = rig(idle=2.0)
    told = [{"type": "frames", "frames": n} for n in range(2, 8)]
    gates = [asyncio.Event() for _ in told]
    for n, gate in enumerate(gates):
        asyncio.get_running_loop().call_later(0.5 * (n + 1), gate.set)
    parts = [part for pair in zip(gates, told, strict=True) for part in pair]
    made.client.on("/v1/speech", reply=talked(*parts))
    made.client.on("/v1/code2wav", reply=sounded(gates[-1], PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body


@pytest.mark.parametrize("who", ["talker", "talker at once", "code2wav", "code2wav at once"])
async def test_who_is_silent_for_too_long_is_replaced(who: str) -> None:
    """The Talker is at fault until it has told its last frame, then Code2Wav is."""
    made, never = rig(idle=0.2, first_token=0.2, further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    silent = Script([never]) if "at once" in who else talked(never)
    if who.startswith("code2wav"):
        silent = sounded(never) if "at once" in who else sounded(PCM[:2000], never)
    path = "/v1/speech" if who.startswith("talker") else "/v1/code2wav"
    made.client.on(path, reply=silent, times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    role = who.partition(" ")[0]
    assert made.count("duet_speech_retries_total", after=role) == 1
    assert await speech_of(made) is Speech.DONE


def going_on(seen: Seen) -> Script:
    return sounded(PCM[2 * seen.json["from_sample"] :])


@pytest.mark.parametrize("header", [RATE, SAMPLES_PER_FRAME, TAIL])
@pytest.mark.parametrize("value", ["left out", "", "-1", "1.5", "٣", "9" * 5000])
async def test_a_code2wav_that_does_not_say_what_a_frame_becomes_is_broken(header: str, value: str) -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM, **{header: value}))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert f"Code2Wav {CODE2WAV.id} sent {header} ".encode() in sink.body


async def test_a_code2wav_at_another_rate_is_broken() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM, **{RATE: "16000"}))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert f"Code2Wav {CODE2WAV.id} sounds at 16000 Hz; expected 24000".encode() in sink.body


@pytest.mark.parametrize("codes", ["nowhere", "http://10.0.0.1", "duet+ipc:///c?stage=talker", "duet+tcp://h?x=1"])
async def test_a_talker_whose_codes_are_nowhere_is_broken_and_another_is_asked(codes: str) -> None:
    made = rig(further=(TALKER_2,))
    made.client.on("/v1/speech", reply=sse_reply({"type": "started", "codes": codes}), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    assert made.count("duet_speech_retries_total", after="talker") == 1


async def test_of_a_speech_that_failed_the_frames_count_that_were_heard() -> None:
    made, heard_two = rig(), asyncio.Event()
    made.client.on("/v1/speech", reply=talked({"type": "frames", "frames": 3}, heard_two, CUT))
    made.client.on("/v1/code2wav", reply=sounded(PCM[: 2 * PER_FRAME + 2], asyncio.Event()))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), {"choices": [], "usage": USAGE}))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink, stream_options={"include_usage": True}))
    await until(lambda: b'"data"' in sink.body)
    heard_two.set()
    await asked
    assert b'"audio_tokens":2' in sink.body
    assert b'"code":"speech_failed"' in sink.body


def failures(made: Rig) -> dict[str, float]:
    """How often each of the speech engines was found to have failed."""
    engines = (TALKER, TALKER_2, CODE2WAV, CODE2WAV_2)
    return {engine.id: made.count("duet_engine_failures_total", engine=engine.id) for engine in engines}


async def all_is_heard(made: Rig) -> None:
    """Where every further Code2Wav gives what is asked of it."""
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    assert heard(sink) == PCM


def blamed(made: Rig) -> list[str]:
    return [engine for engine, count in failures(made).items() if count]


async def test_a_code2wav_that_breaks_off_once_is_asked_again() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM[:2000], CUT), times=1)
    await all_is_heard(made)
    assert sum(failures(made).values()) == 0


UNREACHED = {"error": {"message": "no answer for 10.0 s", "type": "server_error", "code": "channel_producer_lost"}}


def asked_at(made: Rig, path: str) -> list[str]:
    """Which engines were asked there, in order."""
    return [engine.id for engine, seen in made.client.calls if seen.path == path]


async def test_a_code2wav_that_breaks_off_for_want_of_codes_says_so_when_it_is_asked_again() -> None:
    """The Talker's call is still open then: its engine stands still, or is slow to end."""
    made, never = rig(further=(TALKER_2,)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(never), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM[:2000], CUT), times=1)
    made.client.on("/v1/code2wav", reply=json_reply(UNREACHED, status=500), times=1)
    await all_is_heard(made)
    assert blamed(made) == asked_at(made, "/v1/speech")[:1]


@pytest.mark.parametrize("ended", [True, False])
async def test_codes_that_one_code2wav_does_not_reach_another_may(ended: bool) -> None:
    """The network between two hosts is no fault of the Talker's, which is well."""
    made, gate = rig(further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    asyncio.get_running_loop().call_later(2 * SAME_FAULT_WITHIN, gate.set)
    made.client.on("/v1/speech", reply=talked() if ended else talked(gate))
    made.client.on("/v1/code2wav", reply=json_reply(UNREACHED, status=500), times=1)
    await all_is_heard(made)
    assert len(asked_at(made, "/v1/speech")) == 1
    assert blamed(made) == asked_at(made, "/v1/code2wav")[:1]


async def test_codes_that_two_code2wavs_do_not_reach_are_the_talkers_fault() -> None:
    made, never = rig(further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(never), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=json_reply(UNREACHED, status=500), times=2)
    await all_is_heard(made)
    assert sorted(blamed(made)) == sorted((asked_at(made, "/v1/speech")[0], asked_at(made, "/v1/code2wav")[0]))


async def test_where_two_code2wavs_end_alike_the_talker_counts_wrongly() -> None:
    made = rig(further=(TALKER_2, CODE2WAV_2))
    made.client.on("/v1/speech", reply=talked(frames=4), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), {"choices": [], "usage": USAGE}))
    sink = await ask(made, stream_options={"include_usage": True})
    assert b"error" not in sink.body
    assert b'"audio_tokens":3' in sink.body
    assert made.count("duet_speech_retries_total", after="talker") == 1
    assert made.count("duet_speech_retries_total", after="code2wav") == 1


async def test_a_further_talker_with_fewer_frames_is_no_fault_of_code2wavs() -> None:
    made, gate = rig(further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(gate, CUT), times=1)
    made.client.on("/v1/speech", reply=talked(frames=1))
    made.client.on("/v1/code2wav", reply=sounded(PCM[:-2], asyncio.Event()), times=1)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await heard_first(made, gate)
    assert b'"code":"speech_failed"' in sink.body
    assert b"made 1 frames, whose sound ends at sample 1200; another's had reached 3599" in sink.body
    assert failures(made)[CODE2WAV.id] == failures(made)[CODE2WAV_2.id] == 0


async def test_nobody_hears_what_comes_behind_the_end() -> None:
    made, gate = rig(further=(CODE2WAV_2,)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM, gate, bytes(2 * PER_FRAME)), times=1)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await heard_first(made, gate)
    assert heard(sink) == PCM


async def test_a_talker_that_tells_the_same_again_is_silent() -> None:
    made = rig(idle=0.2, first_token=0.2, further=(TALKER_2,))
    gates = [asyncio.Event() for _ in range(400)]
    for n, gate in enumerate(gates):
        asyncio.get_running_loop().call_later(0.1 * (n + 1), gate.set)
    same = [part for gate in gates for part in (gate, {"type": "frames", "frames": 1})]
    made.client.on("/v1/speech", reply=talked(*same), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(asyncio.Event()), times=1)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    assert not gates[-1].is_set(), "it was not waited out"


async def test_a_voice_is_asked_of_who_has_it() -> None:
    made = rig(further=(TALKER_2,))
    made.fleet.members[TALKER_2.id].speakers = ("Zoe",)
    made.client.on("/v1/speech", engine=TALKER_2.id, reply=talked())
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    for n in range(4):
        audio = {"voice": "zoe", "format": "pcm16"}
        sink = await ask(made, audio=audio, request_id=f"r{n}")
        assert b"error" not in sink.body
    made.fleet.members[TALKER_2.id].up = False
    with pytest.raises(NoRoutableEngine, match="answers its health checks"):
        await ask(made, audio=audio, request_id="r9")


@pytest.mark.parametrize("stream", [True, False])
async def test_what_a_talker_refuses_is_the_requests_fault(stream: bool) -> None:
    made = rig(further=(TALKER_2,))
    no = {"error": {"message": "0 assistant turns", "type": "invalid_request_error", "code": "script_invalid"}}
    made.client.on("/v1/speech", reply=json_reply(no, status=400))
    message = {"role": "assistant", "content": "hi"}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})) if stream else json_reply(answer))
    if stream:
        body = (await ask(made)).body
        assert b'"transcript":"hi"' in body
        assert b'"type":"invalid_request_error"' in body
        assert b'"code":"speech_refused"' in body
    else:
        with pytest.raises(SpeechRefused, match="0 assistant turns") as refused:
            await ask(made, stream=False)
        assert refused.value.status == 400
    assert sum(failures(made).values()) == 0


@pytest.mark.parametrize("kind", ["image_url", "video_url", "image_embeds"])
async def test_what_no_talker_can_read_is_refused_before_anything_is_computed(kind: str) -> None:
    made = rig()
    messages = [{"role": "user", "content": [{"type": kind, kind: {"url": "data:x"}}]}]
    with pytest.raises(BadRequest, match=f"messages has {kind}; expected text and sound only"):
        await ask(made, messages=messages)
    with pytest.raises(BadRequest, match="add_generation_prompt is false; expected true"):
        await ask(made, add_generation_prompt=False)
    assert not made.client.posts


async def test_an_answer_that_calls_a_tool_and_sent_no_sound_has_no_tokens_of_it() -> None:
    made, gate = rig(), asyncio.Event()
    call = {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f"}}]}
    made.client.on("/v1/speech", reply=talked({"type": "frames", "frames": 2}, asyncio.Event()))
    made.client.on("/v1/code2wav", reply=sounded(asyncio.Event()))
    made.client.on(leg="decode", reply=text(gate, chunk(call), {"choices": [], "usage": USAGE}))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink, stream_options={"include_usage": True}))
    await until(lambda: any(seen.path == "/v1/code2wav" for seen in made.client.posts))
    for _ in range(50):
        await asyncio.sleep(0)
    gate.set()
    await asked
    assert b'"audio_tokens":0' in sink.body


@pytest.mark.parametrize("how", ["client", "tool"])
async def test_a_talker_that_begins_as_nobody_wants_it_any_more_is_ended(how: str) -> None:
    """In whatever step that is."""
    call = {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f"}}]}
    for steps in range(60):
        made, never, begins, calls, ends = rig(), *(asyncio.Event() for _ in range(4))
        script = talked(never)
        made.client.on("/v1/speech", reply=Script([begins, *script.parts], headers=script.headers))
        made.client.on("/v1/code2wav", reply=sounded(never))
        made.client.on(leg="decode", reply=text(calls, chunk(call), ends))
        sink = KeptSink()
        asked = asyncio.ensure_future(ask(made, sink=sink))
        await until(lambda made=made: any(seen.path == "/v1/speech" for seen in made.client.posts))
        begins.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        if how == "client":
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        else:
            calls.set()
            await until(lambda sink=sink: b"tool_calls" in sink.body)
        (talker,) = (seen for seen in made.client.posts if seen.path == "/v1/speech")
        await until(talker.left.is_set)
        ends.set()
        await asyncio.gather(asked, return_exceptions=True)
        await made.coordinator.drain()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert made.loads() == [0, 0, 0, 0]


async def test_when_both_fail_at_once_no_error_is_left_lying() -> None:
    made, gate = rig(further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(gate, CUT), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM[:1000], gate, CUT), times=1)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    left: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left.append(context))
    sink = await heard_first(made, gate)
    gc.collect()
    assert b"error" not in sink.body
    assert left == []


async def test_an_unsplit_requests_record_says_who_speaks_too() -> None:
    made, gate = rig(), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(gate))
    made.client.on("/v1/code2wav", reply=sounded(gate, PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), gate))
    asked = asyncio.ensure_future(ask(made, prompt_logprobs=1))
    await until(lambda: any(seen.path == "/v1/code2wav" for seen in made.client.posts))
    for _ in range(50):
        await asyncio.sleep(0)
    kept = await made.store.get("r1")
    assert kept is not None
    assert kept.unsplit is not None
    assert (kept.talker, kept.code2wav, kept.speech) == (TALKER.id, CODE2WAV.id, Speech.WAITING)
    assert kept.conditioning is not None
    assert await made.store.loads([TALKER.id, CODE2WAV.id]) == {TALKER.id: 1, CODE2WAV.id: 1}
    gate.set()
    await asked


async def test_speech_that_is_lost_for_good_takes_no_places() -> None:
    """Its text may go on for long."""
    made, gate = rig(), asyncio.Event()
    made.client.on("/v1/speech", reply=json_reply({"error": {"message": "no"}}, status=500))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), gate))
    asked = asyncio.ensure_future(ask(made))
    await until(lambda: any(seen.path == "/v1/speech" for seen in made.client.posts))
    await until(lambda: made.loads()[2:] == [0, 0])
    assert not asked.done()
    gate.set()
    await asked


async def test_places_on_speech_engines_are_counted_for_all_replicas() -> None:
    made = rig()
    gate = asyncio.Event()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(gate, PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    asked = asyncio.ensure_future(ask(made))
    await until(lambda: made.client.posts_of("1"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert await made.store.loads([TALKER.id, CODE2WAV.id]) == {TALKER.id: 1, CODE2WAV.id: 1}
    gate.set()
    await asked
    await made.coordinator.drain()
    assert await made.store.loads([TALKER.id, CODE2WAV.id]) == {TALKER.id: 0, CODE2WAV.id: 0}


@pytest.mark.parametrize("away", [TALKER, CODE2WAV])
async def test_stages_that_go_between_admission_and_speech_leave_the_text_whole(away: Engine) -> None:
    made = rig()
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    looked = made.fleet.candidates
    calls = 0

    def candidates() -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the desk looked twice, the router once
            made.fleet.members[away.id].up = False
        return looked()

    made.fleet.candidates = candidates  # type: ignore[method-assign]
    sink = await ask(made)
    assert b'"transcript":"hi"' in sink.body
    assert b"speech cannot begin" in sink.body
    assert made.loads() == [0, 0, 0, 0]


async def test_the_record_says_who_speaks_from_decode_on() -> None:
    made = rig()
    gate = asyncio.Event()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    made.client.on(leg="decode", reply=Script([gate]))
    asked = asyncio.ensure_future(ask(made))
    await until(lambda: made.client.posts_of("decode"))
    for _ in range(20):
        await asyncio.sleep(0)
    kept = await made.store.get("r1")
    assert kept is not None
    assert (kept.talker, kept.code2wav, kept.speech) == (TALKER.id, CODE2WAV.id, Speech.WAITING)
    assert kept.conditioning is not None
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert await speech_of(made) is Speech.FAILED


@pytest.mark.parametrize("stream", [True, False])
async def test_a_speech_that_failed_before_the_answer_called_a_tool_is_no_failure(stream: bool) -> None:
    made = rig()
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    gate = asyncio.Event()
    refused = {"error": {"message": "no", "type": "x", "param": None, "code": "thinker_lost"}}
    made.client.on("/v1/speech", reply=json_reply(refused, status=502))
    streamed = text(gate, chunk({"tool_calls": [{"index": 0, **call}]}))
    made.client.on(leg="decode", reply=streamed if stream else Script([gate, *json_reply(answer).parts]))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, stream=stream, sink=sink))
    await until(lambda: any(seen.path == "/v1/speech" for seen in made.client.posts))
    await until(lambda: made.client.posts_of("decode"))
    for _ in range(50):
        await asyncio.sleep(0)
    gate.set()
    await asked
    assert b'"tool_calls"' in sink.body
    assert b"error" not in sink.body
    assert b'"audio"' not in sink.body
    assert await speech_of(made) is Speech.DONE


async def test_a_code2wav_without_end_is_broken() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    frame = bytes(2 * PER_FRAME)
    made.client.on("/v1/code2wav", reply=sounded(*[frame * 100] * (MAX_FRAMES // 100 + 1), asyncio.Event()))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"code":"speech_failed"' in sink.body
    assert f"Code2Wav {CODE2WAV.id} went on after the sound of 3 frames".encode() in sink.body


async def test_a_code2wav_that_goes_on_while_nobody_knows_the_end_is_broken() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked(asyncio.Event()))
    frame = bytes(2 * PER_FRAME)
    made.client.on("/v1/code2wav", reply=sounded(*[frame * 100] * (MAX_FRAMES // 100 + 1), asyncio.Event()))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert f"Code2Wav {CODE2WAV.id} went on after the sound of {MAX_FRAMES} frames".encode() in sink.body


@pytest.mark.parametrize("frames", [-1, MAX_FRAMES + 1, 10**9])
async def test_a_talker_that_counts_what_cannot_be_is_broken(frames: int) -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked(frames=frames))
    made.client.on("/v1/code2wav", reply=sounded(PCM))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"code":"speech_failed"' in sink.body
    assert b"sent an event that is none" in sink.body


async def test_references_stand_for_so_many_bytes_together() -> None:
    made = rig()
    await made.store.keep_transcript("audio_1", "é" * 500, 60)

    def referring(times: int) -> Any:
        messages = [{"role": "assistant", "audio": {"id": "audio_1"}}] * times
        return parse(CHAT, json.dumps({"model": "m", "messages": messages}).encode())

    assert await recall(made.store, referring(3), 3000)
    with pytest.raises(PayloadTooLarge, match=r"messages\[3\]\.audio\.id .* 4000 bytes; expected 3000") as refused:
        await recall(made.store, referring(4), 3000)
    assert refused.value.param == "messages[3].audio.id"


def test_of_a_field_that_nobody_knows_little_is_repeated() -> None:
    audio = {"voice": "ethan", "format": "wav", "x" * 100_000: 1}
    body = {"model": "m", "messages": [], "modalities": ["text", "audio"], "audio": audio}
    with pytest.raises(BadRequest, match="unknown field") as refused:
        Ask.of(parse(CHAT, json.dumps(body).encode()), ("ethan",))
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({"max_frames": 99_999}, "audio.sampling.max_frames is 99999: Expected `int` <= 4095"),
        ({"max_frame": 9}, 'audio.sampling is {"max_frame":9}: Object contains unknown field `max_frame`'),
        ({"residual": {"top_p": "a"}}, 'audio.sampling.residual.top_p is "a": Expected `float`, got `str`'),
        ([1], "audio.sampling is [1]: Expected `object | null`, got `array`"),
    ],
)
def test_what_is_wrong_with_the_sampling_is_said_with_what_was_seen(sampling: Any, said: str) -> None:
    audio = {"voice": "ethan", "format": "wav", "sampling": sampling}
    body = {"model": "m", "messages": [], "modalities": ["text", "audio"], "audio": audio}
    with pytest.raises(BadRequest) as refused:
        Ask.of(parse(CHAT, json.dumps(body).encode()), ("ethan",))
    assert str(refused.value) == said
