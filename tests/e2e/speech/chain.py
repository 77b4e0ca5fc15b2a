"""A gateway over real stages, and what its clients hear of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from common.conditioning import read
from gateway.bootstrap import build
from gateway.settings import Settings
from tests.contract.talker.oracle import FRAMES, SPEAKER, Case
from tests.e2e.speech.asking import codes_of, frames_of
from tests.e2e.speech.stages import Stage
from tests.integration.spoken import Heard
from tests.real_engines import RealEngine
from tests.redis_server import scratch_prefix
from tests.serving import serving

GREEDY = {"temperature": 0.0, "max_frames": FRAMES}
READY_WITHIN = 30.0
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
    """Positions of the prompt that each step of prefill computed."""


@dataclass(frozen=True)
class Chain:
    prefill: Stage
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
        prefilled, decoded = await asyncio.gather(
            frames_of(self.prefill.stream(f"{name}-1-prefill", "thinker")),
            frames_of(self.decode.stream(f"{name}-1-decode", "thinker")),
        )
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


@asynccontextmanager
async def chain_over(
    redis_url: str, prefill: Stage, decode: Stage, talker: Stage, code2wavs: Sequence[RealEngine]
) -> AsyncIterator[Chain]:
    async with scratch_prefix(redis_url) as prefix:
        settings = Settings(
            _env_file=None,  # type: ignore[call-arg]
            prefill=(prefill.engine.told,),
            decode=(decode.engine.told,),
            talkers=(talker.engine.url,),
            code2wavs=tuple(engine.url for engine in code2wavs),
            redis_url=redis_url,
            redis_prefix=prefix,
        )
        async with serving(build(settings)) as url, httpx.AsyncClient(base_url=url, timeout=300) as client:
            await _until_it_speaks(client)
            yield Chain(prefill, decode, talker, client)


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
