"""The real Talker does what the gateway relies on, as the fake does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from common.channel import Publisher
from common.channel.reference import Key
from common.conditioning import STAGE
from common.engine import Engine, Role
from common.errors import EngineRefused
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

    async def test_what_cannot_be_sampled_is_refused_by_field(self, port: TalkerPort) -> None:
        with pytest.raises(EngineRefused) as caught:
            await port.begin("contract-real-1", temperature=2.5)
        assert (caught.value.status, caught.value.param) == (400, "temperature")

    @pytest.mark.parametrize("hottest", [{"temperature": 2, "residual": {"temperature": 10}}])
    async def test_the_hottest_is_spoken(self, port: TalkerPort, hottest: dict[str, Any]) -> None:
        await port.spoken("contract-real-2", **hottest, top_k=2**31 - 1, repetition_penalty=10, seed=2**63 - 1)
