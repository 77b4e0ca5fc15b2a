"""The fake Talker does what a real one does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from common.engine import Engine, Role
from tests.contract.stages.talker import LONGEST, TalkerContract, TalkerPort, calling
from tests.fakes.stages import FakeTalker, talker_server

NOBODY = "duet+ipc:///nowhere/rows?request=r&stage=thinker"
"""It hears no Thinker."""

pytestmark = pytest.mark.timeout(600)


class TestFake(TalkerContract):
    @pytest.fixture
    async def port(self) -> AsyncIterator[TalkerPort]:
        fake = FakeTalker(frames=2 * LONGEST)

        async def unfinished() -> str:
            await fake.let_speak(1)
            return NOBODY

        async def silent() -> str:
            fake.frames = 0
            return NOBODY

        async with talker_server(fake), calling() as client:
            yield TalkerPort(client, Engine.at(fake.url, Role.TALKER), NOBODY, unfinished, silent)
