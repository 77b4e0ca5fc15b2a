"""A real Talker and a real Code2Wav that are killed in mid-speech, at a moment that the test's Thinker chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from common.channel import StreamFailed
from tests.awaiting import until
from tests.contract.talker.oracle import Case
from tests.e2e.speech.asking import codes_of
from tests.e2e.speech.chain import Chain, body_of, chain_over, drain, expect_sound
from tests.e2e.speech.stages import Stages, code2wav, talker
from tests.e2e.speech.telling import Paced, paced
from tests.integration.spoken import Heard
from tests.processes import descendants, kill, wait_for_end
from tests.real_engines import RealEngine, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TOLD = 12
"""Text tokens after which the Thinker waits. The Talker has then made ten frames of the case's 24."""
LONG = 1900
"""Text tokens, and frames: far more than are made before anybody can say stop."""
WITHIN = 120.0


@pytest.fixture(scope="module")
def doomed(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RealEngine]]:
    """One more of each, to be killed."""
    root = tmp_path_factory.mktemp("doomed")
    with ExitStack() as stack:
        found = {
            "talker": talker(stack, stages.talker_model, root).engine,
            "code2wav": code2wav(stack, stages.omni, root),
        }
        wait_for(*found.values())
        yield found


@pytest.mark.parametrize("who", ["code2wav", "talker"])
async def test_it_goes_on_with_another_or_says_so(
    stages: Stages, doomed: dict[str, RealEngine], redis_url: str, who: str
) -> None:
    """Two gateways lose the same engine in mid-speech: one has another, one has none."""
    victim, engines = doomed[who], {"talker": stages.talker.engine, "code2wav": stages.code2wav}
    urls = {name: [engine.url] for name, engine in engines.items()}
    alone = {**urls, who: [victim.url]}
    both = {**urls, who: [victim.url, engines[who].url]}
    case = stages.long[0]
    async with (
        paced(redis_url, case, both["talker"], both["code2wav"]) as resumes,
        paced(redis_url, case, alone["talker"], alone["code2wav"]) as ends,
        asyncio.timeout(WITHIN),
    ):
        await drain(resumes.client, engines[who])
        for one in (resumes, ends):
            await one.decode.let_say(TOLD)
        async with resumes.stream() as (whole, first), ends.stream() as (cut, second):
            for kinds in (first, second):
                await _until_sound(kinds)
            assert "finish" not in whole.order + cut.order
            await drain(resumes.client, engines[who], on=False)
            await asyncio.to_thread(_kill, victim)
            for one in (resumes, ends):
                await one.decode.let_say(None)
            await asyncio.gather(_to_the_end(first), _to_the_end(second))
        plain = await _unspoken(ends)
    assert whole.error is None
    expect_sound(stages, case, whole.pcm)
    assert whole.transcript == cut.transcript == plain
    assert cut.error is not None
    assert cut.error["code"] == "speech_failed"
    assert cut.order[-3:] == ["finish", "usage", "error"]
    assert 0 < len(cut.pcm) < len(whole.pcm)
    expect_sound(stages, case, cut.pcm, cut=True)


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


def _kill(engine: RealEngine) -> None:
    below = descendants(engine.child.pid)
    kill(below)
    wait_for_end(below)
