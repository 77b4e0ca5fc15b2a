"""How spoken answers end: what they wait for, what is kept of them, and what they give back before their text ends."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from common.errors import StoreUnavailable
from gateway.dispatch.speech.errors import SpeechFailed
from tests.awaiting import until as eventually
from tests.fakes.script import CUT, Part, Script, json_reply
from tests.unit.gateway.coordinating import KeptSink, Rig, until
from tests.unit.gateway.test_speaking import CODE2WAV, PCM, TALKER, USAGE, ask, chunk, rig, sounded, talked, text

WITHIN = 60.0
"""Seconds after which a test has failed."""
CALL = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BOTH = pytest.mark.parametrize("stream", [True, False])


class Keeping:
    """A store that stands still before each transcript until `gate` opens, and then takes it or fails."""

    def __init__(self, made: Rig, *, fails: bool = False) -> None:
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self._fails = fails
        self._keep = made.store.keep_transcript
        made.store.keep_transcript = self._stands_still  # type: ignore[method-assign]

    async def _stands_still(self, audio_id: str, text: str, ttl: float) -> None:
        self.begun.append(audio_id)
        await self.gate.wait()
        if self._fails:
            raise StoreUnavailable("the store did not answer (keep)")
        await self._keep(audio_id, text, ttl)


def said(stream: bool, **message: Any) -> Script:
    """Decode's answer."""
    if stream:
        return text(chunk(message))
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "stop"}
    return json_reply({"id": "d", "choices": [choice], "usage": USAGE})


def spoken(made: Rig, stream: bool, *sound: Part, **message: Any) -> None:
    """Says "hi" unless told otherwise, with this sound."""
    made.client.on("/v1/speech", reply=talked())
    made.client.on("/v1/code2wav", reply=sounded(*sound))
    made.client.on(leg="decode", reply=said(stream, **(message or {"content": "hi"})))
    made.client.on(leg="release", reply=json_reply({}))


def asked(made: Rig, sink: KeptSink, stream: bool) -> asyncio.Task[KeptSink]:
    return asyncio.ensure_future(ask(made, stream=stream, sink=sink))


async def in_vain(made: Rig, path: str) -> None:
    """Until somebody was asked, and some steps of the loop."""
    await until(lambda: any(seen.path == path for seen in made.client.posts))
    for _ in range(50):
        await asyncio.sleep(0)


@BOTH
async def test_no_answer_waits_for_a_store_that_stands_still(stream: bool) -> None:
    made = rig()
    keeping = Keeping(made)
    spoken(made, stream, PCM)
    async with asyncio.timeout(WITHIN):
        sink = await ask(made, stream=stream)
    assert f'"expires_at":{int(made.clock.now())}'.encode() in sink.body
    assert b"error" not in sink.body
    assert made.count("duet_store_errors_total", op="keep") == 1
    keeping.gate.set()
    await made.coordinator.drain()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@BOTH
async def test_a_store_that_fails_too_late_to_tell_is_counted_once(stream: bool) -> None:
    made = rig()
    keeping = Keeping(made, fails=True)
    spoken(made, stream, PCM)
    async with asyncio.timeout(WITHIN):
        await ask(made, stream=stream)
    keeping.gate.set()
    await made.coordinator.drain()
    assert made.count("duet_store_errors_total", op="keep") == 1


@BOTH
async def test_what_was_said_is_kept_while_it_is_still_being_spoken(stream: bool) -> None:
    made, gate, sink = rig(), asyncio.Event(), KeptSink()
    keeping = Keeping(made)
    keeping.gate.set()
    spoken(made, stream, gate, PCM)
    running = asked(made, sink, stream)
    await until(lambda: keeping.begun)
    assert await made.store.transcripts(keeping.begun) == {keeping.begun[0]: "hi"}
    assert not running.done()
    begun = made.clock.now()
    made.clock.advance(60)
    gate.set()
    await running
    assert f'"expires_at":{int(begun + 3600)}'.encode() in sink.body, "the store counts from there too"


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("how", ["client", "speech"])
@BOTH
async def test_a_write_that_nobody_waits_for_any_more_is_seen_through(stream: bool, how: str, fails: bool) -> None:
    made, gate, sink = rig(), asyncio.Event(), KeptSink()
    keeping = Keeping(made, fails=fails)
    spoken(made, stream, PCM, gate, CUT)
    left: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left.append(context))
    running = asked(made, sink, stream)
    await until(lambda: keeping.begun)
    if how == "client":
        running.cancel()
    else:
        gate.set()
    async with asyncio.timeout(WITHIN):
        (outcome,) = await asyncio.gather(running, return_exceptions=True)
    if how == "client":
        assert isinstance(outcome, asyncio.CancelledError)
    elif stream:
        assert b"speech_failed" in sink.body
    else:
        assert isinstance(outcome, SpeechFailed)
    drained = asyncio.ensure_future(made.coordinator.drain())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not drained.done()
    keeping.gate.set()
    await drained
    gc.collect()
    assert left == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    kept = None if fails else "hi"
    assert await made.store.transcripts(keeping.begun) == {keeping.begun[0]: kept}
    assert made.count("duet_store_errors_total", op="keep") == (1 if fails or (stream and how == "speech") else 0)


@BOTH
async def test_nothing_is_kept_of_an_answer_that_calls_a_tool(stream: bool) -> None:
    made = rig()
    keeping = Keeping(made)
    spoken(made, stream, PCM, tool_calls=[{"index": 0, **CALL}])
    await ask(made, stream=stream)
    await made.coordinator.drain()
    assert keeping.begun == []


@pytest.mark.parametrize("why", ["it failed", "a tool is called"])
async def test_a_speech_that_ends_before_its_text_takes_no_places_in_the_store(why: str) -> None:
    """Other replicas count them."""
    made, calls, ends = rig(), asyncio.Event(), asyncio.Event()
    made.client.on("/v1/speech", reply=talked(asyncio.Event()))
    made.client.on("/v1/code2wav", reply=sounded(PCM, calls, CUT if why == "it failed" else asyncio.Event()))
    more = [] if why == "it failed" else [calls, chunk({"tool_calls": [{"index": 0, **CALL}]})]
    made.client.on(leg="decode", reply=text(chunk({"content": "hi"}), *more, ends))
    running = asked(made, KeptSink(), True)
    await in_vain(made, "/v1/code2wav")
    who = [TALKER.id, CODE2WAV.id]
    assert await made.store.loads(who) == dict.fromkeys(who, 1)
    calls.set()

    async def free() -> bool:
        return await made.store.loads(who) == dict.fromkeys(who, 0)

    await eventually(free, "the places are free", within=WITHIN)
    assert not running.done()
    ends.set()
    await running


@BOTH
async def test_places_that_end_with_the_speech_cost_no_round_trip(stream: bool) -> None:
    """Sound and text end at about one time: `speech_done` says so, and takes the places with it."""
    made, batches = rig(), []
    apply: Callable[..., Any] = made.store.apply

    async def counted(transitions: Any, **more: Any) -> Any:
        batches.append([t.event.value for t in transitions])
        return await apply(transitions, **more)

    made.store.apply = counted  # type: ignore[method-assign]
    spoken(made, stream, PCM)
    await ask(made, stream=stream)
    await made.coordinator.drain()
    assert all(batches)
    assert await made.store.loads([TALKER.id, CODE2WAV.id]) == {TALKER.id: 0, CODE2WAV.id: 0}


class Named(ThreadPoolExecutor):
    """An event loop's own threads, and what is done in them."""

    def __init__(self) -> None:
        super().__init__(1)
        self.taken: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.taken.append(fn)
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("kind", ["wav", "aac"])
async def test_encoding_keeps_no_thread_from_those_who_look_for_a_name(kind: str) -> None:
    if kind == "aac":
        pytest.importorskip("av", reason="the audio extra is not installed")
    made, named = rig(), Named()
    asyncio.get_running_loop().set_default_executor(named)
    spoken(made, False, PCM)
    sink = await ask(made, stream=False, kind=kind)
    assert json.loads(sink.body)["choices"][0]["message"]["audio"]["data"]
    assert named.taken == []
