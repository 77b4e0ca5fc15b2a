"""What passes through the gateway and Redis while half a minute is spoken: text, sound, references. No tensor."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from tests.awaiting import until
from tests.contract.talker.oracle import SPEAKER, sound
from tests.e2e.speech.chain import gateway_of
from tests.e2e.speech.stages import Stages
from tests.e2e.speech.wire import Counted, RedisCounter, counting
from tests.integration.spoken import Heard

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

FRAMES = 375
"""Thirty seconds."""
CODES = FRAMES * 16 * 4
"""Bytes of the codes on the stage channel: int32."""
ROWS = 150 * 64 * 4
"""Bytes of the hidden states of twelve seconds of sound on the stage channel, of which there are 12.5 a second or more:
float32, 64 wide. The real model's are 2048 wide, in 16 bits, so 16 times as many."""
QUIET = 3600.0
"""Seconds between health checks, heartbeats and looks at the load: only requests talk meanwhile."""
SETTLE = 1.0
"""Seconds between two readings: the last transition is written behind the answer."""
STILL = 64
"""Bytes by which the cost of reading itself may differ."""


@dataclass
class Passed:
    """Bytes of one request, heads included: with each engine both ways, and with Redis."""

    to: dict[str, int]
    back: dict[str, int]
    redis: int


async def test_only_text_sound_and_references_pass(stages: Stages, redis_url: str) -> None:
    """The same request with sound and without."""
    names = ("prefill", "decode", "talkers", "code2wavs")
    urls = (stages.prefill.engine.told, stages.decode.engine.told, stages.talker.engine.url, stages.code2wav.url)
    async with AsyncExitStack() as stack:
        wires = {name: await stack.enter_async_context(counting(url)) for name, url in zip(names, urls, strict=True)}
        counter = RedisCounter(await stack.enter_async_context(Redis.from_url(redis_url)))
        quiet = {"health_interval": QUIET, "load_interval": QUIET, "owner_lease": QUIET, "discovery_interval": 60.0}
        engines = {name: [wire.url] for name, wire in wires.items()}
        client = await stack.enter_async_context(gateway_of(redis_url, **engines, **quiet))
        heard, spoken = await _passed(client, wires, counter, _body(speaks=True))
        _, plain = await _passed(client, wires, counter, _body(speaks=False))
    assert heard.error is None
    assert heard.usage is not None
    assert heard.usage["completion_tokens_details"]["audio_tokens"] == FRAMES
    assert len(heard.pcm) == (FRAMES * 1920 - 555) * 2
    assert plain.to["talkers"] == plain.back["talkers"] == plain.back["code2wavs"] == 0
    assert spoken.to["talkers"] + spoken.to["code2wavs"] < 4096, "two requests with references"
    assert spoken.back["talkers"] < CODES, "counts, and no codes"
    assert len(heard.pcm) < spoken.back["code2wavs"] < 1.05 * len(heard.pcm), "sound, and how it is framed"
    for leg in ("prefill", "decode"):
        assert abs(spoken.to[leg] - plain.to[leg]) < 1024, "told under what name to tell"
        assert spoken.back[leg] < ROWS / 2, "at most an event a token, and no rows"
    assert 0 < spoken.redis < plain.redis + CODES / 2


def _body(*, speaks: bool) -> dict[str, Any]:
    given = {"type": "input_audio", "input_audio": {"data": sound(12.0, 300.0), "format": "wav"}}
    text = {
        "model": "tiny",
        "messages": [{"role": "user", "content": [given, {"type": "text", "text": "What was that?"}]}],
        "max_tokens": 60,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sampling = {"max_frames": FRAMES, "seed": 5}
    audio = {"voice": SPEAKER, "format": "pcm16", "sampling": sampling}
    return {**text, "modalities": ["text", "audio"], "audio": audio} if speaks else text


async def _passed(
    client: httpx.AsyncClient, wires: dict[str, Counted], counter: RedisCounter, body: dict[str, Any]
) -> tuple[Heard, Passed]:
    """Runs it, and what it took."""
    await counter.read()
    before = {name: (wire.to, wire.back) for name, wire in wires.items()}
    heard = Heard()
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line and body.get("audio"):
                heard.take(line)
    redis = await _settled(wires, counter)
    to = {name: wire.to - before[name][0] for name, wire in wires.items()}
    back = {name: wire.back - before[name][1] for name, wire in wires.items()}
    passed = Passed(to, back, redis)
    print(f"\n{'spoken' if body.get('audio') else 'plain'}: {passed}")
    return heard, passed


async def _settled(wires: dict[str, Counted], counter: RedisCounter) -> int:
    """What went to Redis and back, once nothing more comes on any connection."""
    spent = 0
    seen: list[tuple[int, int]] = []

    async def nothing_more() -> bool:
        nonlocal spent, seen
        more, now = await counter.read(), [(wire.to, wire.back) for wire in wires.values()]
        spent, still, seen = spent + more, now == seen and abs(more) < STILL, now
        return still

    await until(nothing_more, "nothing more is said", every=SETTLE)
    return spent
