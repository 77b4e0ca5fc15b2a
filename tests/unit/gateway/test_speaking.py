"""Speech over fakes: what becomes of it when the answer calls a tool, when the store is away, when time runs out."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from common.engine import Engine, Role
from gateway.lifecycle import Speech, State
from gateway.wire import parse
from tests.fakes.script import CUT, Part, Script, json_reply, sse_reply
from tests.unit.gateway.coordinating import DECODE, PREFILL, KeptSink, Rig, prefilled, until

CHAT = "/v1/chat/completions"
TALKER = Engine.at("http://127.0.0.1:8300", Role.TALKER)
CODE2WAV = Engine.at("http://127.0.0.1:8400", Role.CODE2WAV)
PCM = bytes(range(240)) * 30


def rig(**over: Any) -> Rig:
    heard = [replace(engine, channel="duet+ipc:///rows") for engine in (PREFILL, DECODE)]
    made = Rig(engines=(*heard, TALKER, CODE2WAV), **over)
    made.fleet.members[TALKER.id].speakers = ("ethan",)
    made.client.on(leg="prefill", reply=prefilled())
    return made


def talked(*parts: Part, frames: int = 3) -> Script:
    started = {"type": "started", "codes": "duet+ipc:///codes?request=r&stage=talker", "prompt_tokens": 9}
    return sse_reply(started, {"type": "frames", "frames": 1}, *parts, {"type": "done", "frames": frames})


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "d", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def text(*parts: Any) -> Script:
    return sse_reply(chunk({"role": "assistant", "content": ""}), *parts, chunk({"content": ""}, "stop"))


async def ask(made: Rig, *, stream: bool = True, sink: KeptSink | None = None, kind: str = "pcm16") -> KeptSink:
    sink = sink if sink is not None else KeptSink()
    audio = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": kind}}
    body = {"model": "m", "messages": [], "stream": stream, **audio}
    await made.coordinator.run("r1", parse(CHAT, json.dumps(body).encode()), sink)
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


async def test_a_whole_answer_that_calls_a_tool_is_as_it_came() -> None:
    made = rig()
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}
    answer = {"id": "d", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=Script([PCM]))
    made.client.on(leg="decode", reply=json_reply(answer))
    sink = await ask(made, stream=False)
    assert json.loads(sink.body) == answer


async def test_without_a_store_the_answer_is_not_promised_to_be_remembered() -> None:
    made = rig()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=Script([PCM]))
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
    made.client.on("/v1/code2wav", reply=Script([PCM, part]))
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
    made.client.on("/v1/code2wav", reply=Script([PCM]))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"code":"speech_failed"' in sink.body
    assert made.loads() == [0, 0, 0, 0]


async def test_a_talker_that_goes_silent_is_given_up_and_the_text_is_whole() -> None:
    made = rig(idle=0.05)
    made.client.on("/v1/speech", reply=talked(asyncio.Event()))
    made.client.on("/v1/code2wav", reply=Script([asyncio.Event()]))
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b'"transcript":"hi"' in sink.body
    assert b"sent nothing" in sink.body


async def test_places_on_speech_engines_are_counted_for_all_replicas() -> None:
    made = rig()
    gate = asyncio.Event()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=Script([gate, PCM]))
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
    made.client.on("/v1/code2wav", reply=Script([PCM]))
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
