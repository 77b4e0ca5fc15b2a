"""One request through all four engines, as a gateway asks it: ids over HTTP, rows and codes over the channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from common.channel import Frame, Puller, Reference
from tests.contract.talker.oracle import FRAMES, SPEAKER, Case
from tests.e2e.speech.stages import Engines, Stage

PREFILLS = {"do_remote_decode": True, "do_remote_prefill": False}
"""What asks a prefill engine of NIXL for its part."""
GREEDY = {"temperature": 0.0, "speaker": SPEAKER, "max_frames": FRAMES}


@dataclass(frozen=True)
class Answer:
    """`events` are those of the speech endpoint, `codes` `[frames][16]`, `heard` samples in [-1, 1] at 24 kHz."""

    prompt: list[int]
    said: list[int]
    events: list[dict[str, Any]]
    codes: list[list[int]]
    heard: Any
    prefill: Reference
    decode: Reference


async def answer(stages: Engines, case: Case, name: str, **speech: Any) -> Answer:
    """Prefill, then decode and speech at once."""
    first, second = f"{name}-p", f"{name}-d"
    prefilled = await leg(stages.prefill, case.messages, first, 1, PREFILLS)
    streams = stages.prefill.stream(first, "thinker"), stages.decode.stream(second, "thinker")
    body = {"request_id": name, "conditioning": [str(stream) for stream in streams], **GREEDY, **speech}
    spoken_at = stages.talker.stream(name, "talker")
    decoded, events, codes, heard = await asyncio.gather(
        leg(stages.decode, case.messages, second, case.tokens, prefilled["kv_transfer_params"]),
        spoken(stages.talker, body),
        codes_of(spoken_at),
        hear(stages, spoken_at),
    )
    said = decoded["choices"][0]["token_ids"]
    return Answer(decoded["prompt_token_ids"], said, events, codes, heard, *streams)


async def spoken(talker: Stage, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one speech, `[DONE]` asserted."""
    async with httpx.AsyncClient(timeout=300) as client:
        reply = await client.post(f"{talker.engine.url}/v1/speech", json=body)
    assert reply.status_code == 200, reply.text
    *lines, last, end = reply.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def hear(stages: Engines, codes: Reference, from_sample: int = 0) -> Any:
    """What Code2Wav makes of a stream of codes: float64 `[samples]` in [-1, 1]."""
    import numpy as np

    async with httpx.AsyncClient(timeout=300) as client:
        body = {"codes": str(codes), "from_sample": from_sample}
        reply = await client.post(f"{stages.code2wav.url}/v1/code2wav", json=body)
    assert reply.status_code == 200, reply.text
    return np.frombuffer(reply.content, "<i2") / 32767


async def codes_of(stream: Reference) -> list[list[int]]:
    from engines.channel import to_tensor

    rows: list[list[int]] = []
    for frame in await frames_of(stream):
        rows += to_tensor(frame.rows["codes"]).tolist()
    return rows


async def frames_of(stream: Reference) -> list[Frame]:
    async with Puller(lost_after=60.0) as puller, aclosing(puller.frames(stream)) as frames:
        return [frame async for frame in frames]


async def leg(
    stage: Stage, messages: list[dict[str, Any]], name: str, tokens: int, kv: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """`name` ends with the leg, behind a hyphen: it is where the rows are published."""
    body = {
        "model": "tiny",
        "messages": messages,
        "max_tokens": tokens,
        "temperature": 0,
        "return_token_ids": True,
        "kv_transfer_params": kv,
        "vllm_xargs": {"duet_conditioning": name},
        "cache_salt": name.rpartition("-")[0],  # rows of sound that a prefix cache has are computed by nobody
        **fields,
    }
    async with httpx.AsyncClient(timeout=300) as client:
        reply = await client.post(f"{stage.engine.url}/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@asynccontextmanager
async def speaking(talker: Stage, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of one speech as they come; leaving the block is a client that leaves."""
    async with (
        httpx.AsyncClient(timeout=300) as client,
        client.stream("POST", f"{talker.engine.url}/v1/speech", json=body) as reply,
    ):
        assert reply.status_code == 200, await reply.aread()
        yield (json.loads(line[6:]) async for line in reply.aiter_lines() if line and line != "data: [DONE]")
