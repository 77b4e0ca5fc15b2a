"""What the gateway relies on in a Talker. `TalkerContract` is a suite for whoever says he is one: a subclass has a
fixture `port`. The fake's stands beside; the real one's is in `tests/e2e/speech`, where there is an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from common.channel import Puller, Reference, StreamFailed
from common.engine import Engine
from common.errors import EngineRefused
from gateway.dispatch.speech.talk import Talk
from gateway.transport.http import HttpEngineClient
from tests.contract.stages.conftest import DEADLINES

LONGEST = 9
"""Frames that a speech may have here. Whoever is asked makes more if it is let."""


@dataclass(frozen=True)
class TalkerPort:
    """A Talker, as the gateway calls it. `conditioning` is all that a Thinker said; `unfinished` are references to one
    that goes on saying nothing, and `silent` to one that said one word only."""

    client: HttpEngineClient
    engine: Engine
    conditioning: str
    unfinished: Callable[[], Awaitable[str]]
    silent: Callable[[], Awaitable[str]]

    async def begin(self, name: str, conditioning: str | None = None, **fields: Any) -> Talk:
        body = {
            "request_id": name,
            "conditioning": [conditioning or self.conditioning],
            "max_frames": LONGEST,
            **fields,
        }
        return await Talk.begin(self.client, self.engine, name, body, DEADLINES)

    async def spoken(self, name: str, **fields: Any) -> tuple[int, list[bytes]]:
        """How many frames it says it made, and those that it published."""
        talk = await self.begin(name, **fields)
        try:
            async with asyncio.timeout(60):
                return await talk.ended, await frames(talk.codes)
        finally:
            talk.close()


async def frames(codes: str) -> list[bytes]:
    """Each frame's codes, as their bytes."""
    found = []
    async with Puller() as puller, aclosing(puller.frames(Reference.parse(codes))) as pulled:
        async for frame in pulled:
            rows = frame.rows["codes"]
            assert (rows.dtype, rows.shape) == ("int32", (1, 16))
            found.append(bytes(rows.data))
    return found


@asynccontextmanager
async def calling() -> AsyncIterator[HttpEngineClient]:
    client = HttpEngineClient()
    await client.start()
    try:
        yield client
    finally:
        await client.aclose()


class TalkerContract:
    async def test_it_tells_who_it_is(self, port: TalkerPort) -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            told = (await client.get(f"{port.engine.url}/duet/identity")).json()
        assert told["stage"] == "talker"
        assert told["model"]
        assert {"ethan", "chelsie"} <= set(told["speakers"])

    async def test_it_says_where_the_codes_are_and_how_many(self, port: TalkerPort) -> None:
        count, codes = await port.spoken("contract-1")
        assert (count, len(codes)) == (LONGEST, LONGEST)

    async def test_codes_can_be_read_while_they_are_made(self, port: TalkerPort) -> None:
        talk = await port.begin("contract-2", await port.unfinished())
        async with (
            asyncio.timeout(60),
            Puller() as puller,
            aclosing(puller.frames(Reference.parse(talk.codes))) as codes,
        ):
            assert (await anext(codes)).index == 0
            assert not talk.ended.done()
        talk.close()

    async def test_a_seed_is_the_same_speech(self, port: TalkerPort) -> None:
        _, first = await port.spoken("contract-3", seed=7)
        _, again = await port.spoken("contract-4", seed=7)
        _, other = await port.spoken("contract-5", seed=8)
        assert first == again != other

    async def test_without_a_seed_there_is_one_all_the_same(self, port: TalkerPort) -> None:
        _, first = await port.spoken("contract-6")
        _, again = await port.spoken("contract-7", seed=42)
        assert first == again

    async def test_greedy_stays_greedy_where_the_residual_says_nothing_of_temperature(self, port: TalkerPort) -> None:
        _, plain = await port.spoken("contract-11", temperature=0)
        _, told = await port.spoken("contract-12", temperature=0, residual={"top_k": 5})
        assert plain == told

    async def test_whoever_leaves_ends_the_codes(self, port: TalkerPort) -> None:
        talk = await port.begin("contract-8", await port.unfinished())
        talk.close()
        async with asyncio.timeout(60):
            with pytest.raises(StreamFailed, match="cancelled"):
                await frames(talk.codes)

    async def test_one_word_is_silence(self, port: TalkerPort) -> None:
        assert await port.spoken("contract-9", conditioning=await port.silent()) == (0, [])

    async def test_a_speaker_that_it_has_not_is_refused(self, port: TalkerPort) -> None:
        with pytest.raises(EngineRefused) as caught:
            await port.begin("contract-10", speaker="nobody")
        assert (caught.value.status, caught.value.code) == (400, "speech_unsupported")
