"""A gateway over real stages, and what its clients hear of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from common.conditioning import STAGE, read
from gateway.bootstrap import build
from gateway.settings import Settings
from tests.awaiting import until
from tests.contract.talker.oracle import FRAMES, SPEAKER, Case
from tests.e2e.conftest import HEALTH_TIMEOUT
from tests.e2e.speech.asking import codes_of, frames_of
from tests.e2e.speech.stages import Stage, Stages
from tests.integration.spoken import Heard
from tests.real_engines import RealEngine
from tests.redis_server import scratch_prefix
from tests.serving import serving

GREEDY = {"temperature": 0.0, "max_frames": FRAMES}
CLOSE = 1e-3
"""Of full scale."""
READY_WITHIN = 120.0
"""Seconds until the gateway has asked its engines who they are."""


@dataclass(frozen=True)
class Said:
    """One answer. `told` are the ids that decode told the Talker: the prompt, and all that was said but the last;
    `codes` `[frames][16]`; `sound` is s16le, as the client has it."""

    name: str
    """The request's id; engines' own begin with it."""
    heard: Heard
    told: list[int]
    codes: list[list[int]]
    sound: bytes
    prompt_steps: list[int]
    """Positions of the prompt that each step of prefill computed; none without one."""


@dataclass(frozen=True)
class Chain:
    prefill: Stage | None
    """None where decode does all of it, as an unsplit Thinker does."""
    decode: Stage
    talker: Stage
    client: httpx.AsyncClient

    async def say(self, case: Case, **fields: Any) -> Said:
        """Streamed, greedy unless `fields` say otherwise."""
        heard = Heard()
        body = {**body_of(case), "stream": True, "stream_options": {"include_usage": True}, **fields}
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            name = reply.headers["x-duet-request-id"]
            async for line in reply.aiter_lines():
                if line:
                    heard.take(line)
        assert heard.done, heard.events[-1:]
        assert heard.error is None, heard.error
        prefilled = await frames_of(self.prefill.stream(f"{name}-1-prefill", STAGE)) if self.prefill else []
        decoded = await frames_of(self.decode.stream(f"{name}-1-decode", STAGE))
        codes = await codes_of(self.talker.stream(f"{name}-1-speech-1", "talker"))
        told = [token for frame in decoded for token in read(frame).ids]
        steps = [len(read(frame).ids) for frame in prefilled]
        return Said(name, heard, told, codes, heard.pcm, steps)

    async def message(self, case: Case, kind: str) -> dict[str, Any]:
        """The whole message of an answer that is not streamed, its sound in format `kind`."""
        body = body_of(case)
        reply = await self.client.post(
            "/v1/chat/completions", json={**body, "audio": {**body["audio"], "format": kind}}, timeout=120
        )
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()["choices"][0]["message"]
        return found


def body_of(case: Case) -> dict[str, Any]:
    return {
        "model": "tiny",
        "messages": case.messages,
        "max_tokens": case.tokens,
        "temperature": 0,
        "modalities": ["text", "audio"],
        "audio": {"voice": SPEAKER, "format": "pcm16", "sampling": GREEDY},
    }


def expect_transformers_own(stages: Stages, answers: Sequence[Said], cases: Sequence[Case] | None = None) -> None:
    """Text ids, codes and samples: of `cases`, which are all the usual ones if left out."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(stages.omni)
    for case, got in zip(stages.oracle if cases is None else cases, answers, strict=True):
        assert got.told == [*case.prompt, *case.said[:-1]]
        text = tokenizer.decode(case.said, skip_special_tokens=True)
        assert got.heard.transcript == text.rstrip("\ufffd"), "half a character at the end is nobody's to read"
        assert got.codes == case.codes
        expect_sound(stages, case, got.sound)
        assert got.heard.usage is not None
        assert got.heard.usage["completion_tokens_details"]["audio_tokens"] == len(case.codes)


def expect_sound(stages: Stages, case: Case, pcm: bytes, *, cut: bool = False) -> None:
    """s16le is one full pass of transformers' Code2Wav over the case's codes; `cut` is how it begins."""
    import numpy as np

    heard, whole = np.frombuffer(pcm, "<i2") / 32767, stages.whole(case.codes)
    assert len(whole) == len(case.codes) * 1920 - 555
    assert len(heard) < len(whole) if cut else len(heard) == len(whole)
    assert np.abs(heard - whole[: len(heard)]).max() < CLOSE


@asynccontextmanager
async def chain_over(
    redis_url: str, prefill: Stage, decode: Stage, talker: Stage, code2wavs: Sequence[RealEngine], **options: Any
) -> AsyncIterator[Chain]:
    """`options` are the gateway's."""
    gateway = gateway_of(
        redis_url,
        prefill=[prefill.engine.told],
        decode=[decode.engine.told],
        talkers=[talker.engine.url],
        code2wavs=[engine.url for engine in code2wavs],
        **options,
    )
    async with gateway as client:
        yield Chain(prefill, decode, talker, client)


async def until_up(client: httpx.AsyncClient, engine: RealEngine) -> None:
    """A gateway that can speak by now may know one engine of a kind only."""

    async def up() -> bool:
        engines = (await client.get("/admin/topology")).json()["engines"]
        return any(found["url"] == engine.url and found["up"] for found in engines)

    await until(up, f"{engine.url} is up", within=READY_WITHIN, every=0.1)


async def drain(client: httpx.AsyncClient, engine: RealEngine, *, on: bool = True) -> None:
    """Whether the gateway leaves the engine out of what comes from now on."""
    what = "drain" if on else "undrain"
    (await client.post(f"/admin/engines/{engine.url.removeprefix('http://')}/{what}")).raise_for_status()


@asynccontextmanager
async def gateway_of(redis_url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway with these settings that can speak by now."""
    async with scratch_prefix(redis_url) as prefix:
        chosen = {"redis_url": redis_url, "redis_prefix": prefix, "health_timeout": HEALTH_TIMEOUT, **options}
        settings = Settings(_env_file=None, **chosen)  # type: ignore[call-arg]
        async with serving(build(settings)) as url, httpx.AsyncClient(base_url=url, timeout=300) as client:
            await _until_it_speaks(client)
            yield client


async def _until_it_speaks(client: httpx.AsyncClient) -> None:
    """A gateway is ready for text before it knows who speaks."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    audio = {"voice": SPEAKER, "format": "wav", "sampling": {"max_frames": 1}}
    async with asyncio.timeout(READY_WITHIN):
        while True:
            reply = await client.post(
                "/v1/chat/completions", json={**body, "modalities": ["text", "audio"], "audio": audio}
            )
            if reply.status_code == 200:
                return
            await asyncio.sleep(0.1)
