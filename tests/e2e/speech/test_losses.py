"""A real Talker and a real Code2Wav that are killed, told to stop, or stand still in mid-speech, at a moment that the
test's Thinker chooses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.channel import Publisher, StreamFailed
from common.channel.reference import Key
from common.conditioning import STAGE, frame_rows
from tests.awaiting import until
from tests.contract.talker.oracle import Case
from tests.e2e.speech.asking import GREEDY, codes_of, speaking
from tests.e2e.speech.chain import Chain, body_of, chain_over, drain, expect_sound, until_up
from tests.e2e.speech.stages import Stage, Stages, code2wav, talker
from tests.e2e.speech.telling import Paced, paced, prompt_rows, tell
from tests.integration.spoken import Heard
from tests.processes import descendants, kill, wait_for_end
from tests.real_engines import READY_WITHIN, RealEngine, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TOLD = 12
"""Text tokens after which the Thinker waits. The Talker has then made ten frames of the case's 24."""
LONG = 1900
"""Text tokens, and frames: far more than are made before anybody can say stop."""
WITHIN = 120.0
FOUND_OUT_AFTER = 5.0
"""Seconds that an engine which stands still may take for a health check: three in a row, and it counts as down."""


@pytest.fixture(scope="module")
def doomed(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RealEngine]]:
    """More of them, to be killed or stopped."""
    killed, stopped = (tmp_path_factory.mktemp(name) for name in ("killed", "stopped"))
    with ExitStack() as stack:
        found = {
            "killed talker": talker(stack, stages.talker_model, killed).engine,  # halted first, for a while
            "killed code2wav": code2wav(stack, stages.omni, killed),
            "stopped talker": talker(stack, stages.talker_model, stopped).engine,
        }
        wait_for(*found.values())
        yield {**found, "halted talker": found["killed talker"]}


@pytest.mark.parametrize("lost", ["killed code2wav", "halted talker", "killed talker", "stopped talker"])
async def test_it_goes_on_with_another_or_says_so(
    stages: Stages, doomed: dict[str, RealEngine], redis_url: str, lost: str
) -> None:
    """Two gateways lose the same engine in mid-speech: one has another, one has none. The Talker lacks text then."""
    how, who = lost.split()
    victim, engines = doomed[lost], {"talker": stages.talker.engine, "code2wav": stages.code2wav}
    urls = {name: [engine.url] for name, engine in engines.items()}
    alone = {**urls, who: [victim.url]}
    both = {**urls, who: [victim.url, engines[who].url]}
    case = stages.long[0]
    async with (
        paced(redis_url, case, both["talker"], both["code2wav"], health_timeout=FOUND_OUT_AFTER) as resumes,
        paced(redis_url, case, alone["talker"], alone["code2wav"], health_timeout=FOUND_OUT_AFTER) as ends,
        asyncio.timeout(WITHIN),
    ):
        await until_up(resumes.client, victim)
        await drain(resumes.client, engines[who])
        for one in (resumes, ends):
            await one.decode.let_say(TOLD)
        async with resumes.stream() as (whole, first), ends.stream() as (cut, second):
            for kinds in (first, second):
                await _until_sound(kinds)
            assert "finish" not in whole.order + cut.order
            await drain(resumes.client, engines[who], on=False)
            await asyncio.to_thread(LOSSES[how], victim)
            try:
                for one in (resumes, ends):
                    await one.decode.let_say(None)
                await asyncio.gather(_to_the_end(first), _to_the_end(second))
            finally:
                if how == "halted":
                    _signal(victim, signal.SIGCONT)
        plain = await _unspoken(ends)
    assert whole.error is None
    expect_sound(stages, case, whole.pcm)
    assert whole.transcript == cut.transcript == plain
    assert cut.error is not None
    assert cut.error["code"] == "speech_failed"
    assert cut.order[-3:] == ["finish", "usage", "error"]
    assert 0 < len(cut.pcm) < len(whole.pcm)
    expect_sound(stages, case, cut.pcm, cut=True)


async def test_a_talker_that_is_told_to_stop_tells_whoever_waits_for_it(stages: Stages, tmp_path: Path) -> None:
    """In mid-speech, for want of text, of the first word and of the prompt: to each of them it says so and ends."""
    case = stages.long[0]
    names = {"speaks": len(case.said), "lacks-text": 2, "lacks-words": 0, "lacks-prompt": None}
    async with AsyncExitStack() as stack, asyncio.timeout(READY_WITHIN + WITHIN):
        thinkers = {name: stack.enter_context(Publisher()) for name in names}
        victim = talker(stack.enter_context(ExitStack()), stages.talker_model, tmp_path)
        await asyncio.to_thread(wait_for, victim.engine)
        bodies = {name: _told(thinkers[name], case, name, words) for name, words in names.items()}
        unanswered = asyncio.ensure_future(_refusal(victim, bodies.pop("lacks-prompt")))
        events = {name: await stack.enter_async_context(speaking(victim, body)) for name, body in bodies.items()}
        for name, made in {"speaks": 5, "lacks-text": 1}.items():
            await _until_frames(events[name], made)

        async def all_heard() -> bool:
            return all(len(thinker._consumers) for name, thinker in thinkers.items() if name != "speaks")

        await until(all_heard, "the Talker listens for all of them", within=WITHIN)
        victim.engine.child.ask_to_stop()
        for name in events:
            *_, last = [event async for event in events[name]]
            assert (last["type"], last.get("error", {}).get("code")) == ("error", "speech_failed"), name
        assert await unanswered == (502, "speech_failed")
        assert await asyncio.to_thread(victim.engine.child.wait, WITHIN) == 0


def _told(thinker: Publisher, case: Case, name: str, words: int | None) -> dict[str, Any]:
    """What to ask for speech of so many words; of half a prompt only, for None. All words are a whole answer."""
    key = Key(name, STAGE)
    if words is None:
        thinker.publish(key, frame_rows(len(case.prompt), 0, case.prompt[: len(case.prompt) // 2]))
    else:
        thinker.publish(key, prompt_rows(case))
        tell(thinker, key, case, 0, words)
    if words == len(case.said):
        thinker.close(key)
    return {"request_id": name, "conditioning": [str(thinker.reference(key))], **GREEDY, "max_frames": LONG}


async def _refusal(talker: Stage, body: dict[str, Any]) -> tuple[int, str]:
    async with httpx.AsyncClient(timeout=READY_WITHIN) as client:
        reply = await client.post(f"{talker.engine.url}/v1/speech", json=body)
    return reply.status_code, reply.json()["error"]["code"]


async def _until_frames(events: AsyncIterator[dict[str, Any]], frames: int) -> None:
    async for event in events:
        if event["type"] == "frames" and event["frames"] >= frames:
            return
    raise AssertionError(f"it ended before it had made {frames} frames")


async def test_cancelling_stops_all_four_stages(stages: Stages, redis_url: str) -> None:
    """In the midst of answers of three minutes. What must be gone is waited for: whatever each of them left open would
    be there as often as they are; one connection more or less is kept alive by a client."""
    async with chain_over(redis_url, stages.prefill, stages.decode, stages.talker, [stages.code2wav]) as chain:
        await chain.say(stages.oracle[0])
        before = [_open_files(engine) for engine in stages.all]
        cancelled = [await _cancelled(chain, stages.oracle[0], how) for how in ("client", "operator") * 2]
        for name in cancelled:
            with pytest.raises(StreamFailed, match="cancelled"):
                await codes_of(stages.talker.stream(f"{name}-1-speech-1", "talker"))

        async def nothing_left() -> bool:
            """Engines tell new figures with the next request."""
            await chain.say(stages.oracle[1])
            loads = [e["load"] for e in (await chain.client.get("/admin/topology")).json()["engines"]]
            running = [await _running(engine) for engine in stages.all]
            more = [_open_files(engine) - then for engine, then in zip(stages.all, before, strict=True)]
            print(f"loads {loads}, running {running}, files more than before {more}")
            return not any(loads) and not any(running) and max(more) < len(cancelled)

        await until(nothing_left, "no stage has anything of them", within=WITHIN, every=0.2)
        for name in cancelled:
            assert (await chain.client.get(f"/admin/requests/{name}")).json()["state"] == "cancelled"
            legs = f"{name}-1-decode aborted", f"{name}-1-speech-1 aborted"
            for engine, leg in zip((stages.decode.engine, stages.talker.engine), legs, strict=True):
                assert engine.log().count(leg) == 1


async def _cancelled(chain: Chain, case: Case, how: str) -> str:
    """The id of a request that was cancelled after its first sound."""
    body = {**body_of(case), "stream": True, "max_tokens": LONG, "ignore_eos": True}
    body["audio"] = {**body["audio"], "sampling": {"max_frames": LONG}}
    heard = Heard()
    async with chain.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        name = reply.headers["x-duet-request-id"]
        lines = reply.aiter_lines()
        await _until_sound(heard.take(line) async for line in lines if line)
        if how == "operator":
            (await chain.client.delete(f"/admin/requests/{name}")).raise_for_status()
            assert [heard.take(line) async for line in lines if line][-2:] == ["error", "done"]
    return name


async def _until_sound(kinds: AsyncIterator[str]) -> None:
    async for kind in kinds:
        if kind == "data":
            return


async def _to_the_end(kinds: AsyncIterator[str]) -> None:
    async for _ in kinds:
        pass


async def _unspoken(paced: Paced) -> str:
    """What the same request's text is without sound."""
    body = {name: value for name, value in body_of(paced.case).items() if name not in ("modalities", "audio")}
    reply = await paced.client.post("/v1/chat/completions", json=body)
    return str(reply.json()["choices"][0]["message"]["content"])


async def _running(engine: RealEngine) -> float:
    """Requests that it has, waiting ones too."""
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{", "duet_code2wav_running ")
    async with httpx.AsyncClient(timeout=60) as client:
        lines = (await client.get(f"{engine.url}/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))


def _open_files(engine: RealEngine) -> int:
    """Sockets among them, of all its processes."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in descendants(engine.child.pid))


def _stop(engine: RealEngine) -> None:
    """It ends by itself, while those whom it speaks for are still there: else its guards would kill it."""
    engine.child.ask_to_stop()
    assert engine.child.wait(WITHIN) == 0


def _kill(engine: RealEngine) -> None:
    below = descendants(engine.child.pid)
    kill(below)
    wait_for_end(below)


def _halt(engine: RealEngine) -> None:
    """Its connections stay as they are, and nothing more is said on any of them."""
    _signal(engine, signal.SIGSTOP)


def _signal(engine: RealEngine, which: signal.Signals) -> None:
    for pid in descendants(engine.child.pid):
        os.kill(pid, which)


LOSSES = {"killed": _kill, "stopped": _stop, "halted": _halt}
