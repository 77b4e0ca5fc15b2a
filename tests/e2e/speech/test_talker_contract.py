"""The real Talker does what the gateway relies on, as the fake does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from common.channel import Publisher
from common.channel.reference import Key
from common.conditioning import STAGE
from common.engine import Engine, Role
from tests.contract.stages.talker import TalkerContract, TalkerPort, calling
from tests.e2e.speech.stages import Stages
from tests.e2e.speech.telling import prompt_rows, tell

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


class TestReal(TalkerContract):
    @pytest.fixture
    async def port(self, stages: Stages) -> AsyncIterator[TalkerPort]:
        case = stages.oracle[0]
        with Publisher() as thinker:

            def told(name: str, words: int, *, whole: bool) -> str:
                key = Key(name, STAGE)
                thinker.publish(key, prompt_rows(case))
                tell(thinker, key, case, 0, words)
                if whole:
                    thinker.close(key)
                return str(thinker.reference(key))

            async def unfinished() -> str:
                return told("unfinished", 2, whole=False)

            async def silent() -> str:
                return told("silent", 0, whole=True)

            async with calling() as client:
                engine = Engine.at(stages.talker.engine.url, Role.TALKER)
                yield TalkerPort(client, engine, told("said", len(case.said), whole=True), unfinished, silent)
