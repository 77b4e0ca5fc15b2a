"""Which engine of a speech is found to be at fault, and who may take its place."""

from __future__ import annotations

import asyncio

import pytest

from common.engine import Role
from gateway.dispatch.speech import silence
from gateway.lifecycle import Speech
from tests.fakes.script import CUT, Script, json_reply
from tests.unit.gateway.coordinating import KeptSink, until
from tests.unit.gateway.test_speaking import (
    CODE2WAV_2,
    PCM,
    TALKER_2,
    ask,
    chunk,
    failures,
    going_on,
    heard,
    rig,
    sounded,
    speech_of,
    talked,
    text,
)

SICK = json_reply({"error": {"message": "sick", "type": "server_error"}}, status=500)


async def test_what_the_budget_forbids_is_counted_and_said() -> None:
    made = rig(further=(TALKER_2,), share=0.0, floor=0)
    made.client.on("/v1/speech", reply=SICK)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"; the retry budget was used up" in sink.body
    assert made.count("duet_retries_denied_total") == 1


@pytest.mark.parametrize("who", ["talker", "code2wav"])
async def test_a_speech_that_has_begun_goes_on_whatever_the_budget(who: str) -> None:
    made = rig(further=(TALKER_2, CODE2WAV_2), share=0.0, floor=0)
    made.client.on("/v1/speech", reply=talked(CUT) if who == "talker" else talked(), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM[:2000], *([CUT] if who == "code2wav" else [])), times=1)
    made.client.on("/v1/code2wav", reply=SICK, times=1 if who == "code2wav" else 0)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    assert heard(sink) == PCM
    assert made.count("duet_retries_denied_total") == 0


async def test_a_code2wav_that_is_out_is_not_asked_again() -> None:
    made, gate = rig(further=(CODE2WAV_2,)), asyncio.Event()
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(PCM[:2000], gate, CUT), times=1)
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink))
    await until(lambda: b'"data"' in sink.body)
    (first,) = [engine for engine, seen in made.client.calls if seen.path == "/v1/code2wav"]
    made.fleet.members[first.id].up = False
    gate.set()
    await asked
    assert heard(sink) == PCM
    first_again, second = [engine for engine, seen in made.client.calls if seen.path == "/v1/code2wav"]
    assert (first_again, second.role) == (first, Role.CODE2WAV)
    assert second != first


@pytest.mark.parametrize("who", ["talker", "talker at once", "code2wav"])
async def test_who_is_out_and_silent_is_replaced_long_before_its_deadline(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "OUT_FOR", 0.2)
    made, never = rig(idle=60.0, first_token=60.0, further=(TALKER_2, CODE2WAV_2)), asyncio.Event()
    role = Role(who.partition(" ")[0])
    path = f"/v1/{'speech' if role is Role.TALKER else 'code2wav'}"
    silent = Script([never]) if "at once" in who else talked(never) if who == "talker" else sounded(PCM[:2000], never)
    made.client.on(path, reply=silent, times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = KeptSink()
    asked = asyncio.ensure_future(ask(made, sink=sink))
    sign = b"hi" if "at once" in who else b'"data"'
    await until(lambda: sign in sink.body and path in [seen.path for _, seen in made.client.calls])
    await asyncio.sleep(0.1)  # and it is waited for
    first = next(engine for engine, seen in made.client.calls if seen.path == path)
    made.fleet.members[first.id].lose()
    await asyncio.wait_for(asked, 20)
    assert b"error" not in sink.body
    assert heard(sink) == PCM
    assert failures(made)[first.id] == 1
    assert await speech_of(made) is Speech.DONE


@pytest.mark.parametrize("frames", [2, 4])
async def test_where_there_is_no_other_code2wav_a_count_that_is_wrong_is_held_against_the_talker(frames: int) -> None:
    made = rig(further=(TALKER_2,))
    made.client.on("/v1/speech", reply=talked(frames=frames), times=1)
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=going_on)
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"})))
    sink = await ask(made)
    assert b"error" not in sink.body
    assert heard(sink) == PCM
    assert made.count("duet_speech_retries_total", after="talker") == 1
