"""What stands behind the gateway's calls of speech: fakes, and the real thing where it is cheap, with a tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from common.channel import Publisher
from common.engine import Engine, Role
from gateway.dispatch.speech.ask import MAX_FRAMES
from gateway.dispatch.speech.vocode import Codes as Told
from gateway.dispatch.speech.vocode import vocode
from gateway.transport.http import HttpEngineClient
from gateway.transport.port import Deadlines
from tests.contract.code2wav.conftest import CODEBOOK, GROUPS, Codes, omni, vocoder
from tests.fakes.stages import FakeCode2Wav, code2wav_server
from tests.serving import serving

__all__ = ["omni", "vocoder"]

DEADLINES = Deadlines(30, 60, 30)


@dataclass
class Port:
    """A Code2Wav, as the gateway calls it, and a producer of codes beside it."""

    client: HttpEngineClient
    engine: Engine
    codes: Codes
    _made: dict[str, int] = field(default_factory=dict)
    _ended: dict[str, asyncio.Future[int]] = field(default_factory=dict)

    def put(self, name: str, frames: int, begin: int = 0) -> None:
        """Frames from number `begin` on; the same number is always the same frame."""
        self.codes.put(name, np.stack([_frame(at) for at in range(begin, frames)]))
        self._made[name] = frames

    def end(self, name: str, error: str | None = None, *, frames: int | None = None) -> None:
        """`frames` is how many the Talker says there were, if not as many as there were."""
        self.codes.end(name, error)
        if error is None:
            self._of(name).set_result(self._made.get(name, 0) if frames is None else frames)

    def told(self, name: str) -> Told:
        return Told("talker", self.codes.reference(name), MAX_FRAMES, self._of(name))

    async def sound(self, name: str, from_sample: int = 0) -> AsyncGenerator[bytes, None]:
        call = vocode(self.client, self.engine, "call", self.told(name), from_sample, DEADLINES)
        async with aclosing(call) as parts:
            async for part in parts:
                yield part.pcm

    async def whole(self, name: str, from_sample: int = 0) -> bytes:
        return b"".join([part async for part in self.sound(name, from_sample)])

    def _of(self, name: str) -> asyncio.Future[int]:
        return self._ended.setdefault(name, asyncio.get_running_loop().create_future())


def _frame(at: int) -> Any:
    return np.random.default_rng(at).integers(0, CODEBOOK, GROUPS)


@pytest.fixture(params=["fake", "real"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    async with AsyncExitStack() as stack:
        publisher = stack.enter_context(Publisher())
        if request.param == "fake":
            fake = await stack.enter_async_context(code2wav_server(FakeCode2Wav()))
            url = fake.url
        else:
            made = request.getfixturevalue("vocoder")
            from engines.code2wav.app import create_app

            url = await stack.enter_async_context(serving(create_app(made)))
        client = HttpEngineClient()
        await client.start()
        stack.push_async_callback(client.aclose)
        yield Port(client, Engine.at(url, Role.CODE2WAV), Codes(publisher))
