"""The chain with Mooncake between its Thinkers, for a process in a network namespace of its own: `test_mooncake.py`
runs this there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from common.connectors.mooncake import MooncakeConnector
from common.valkey import EmbeddedValkey
from tests.e2e.conftest import sources_of
from tests.e2e.speech.chain import chain_over, expect_transformers_own
from tests.e2e.speech.stages import Stages, engines, with_oracle

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NAME = MooncakeConnector.name


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """By a socket in a directory: nothing that stands outside can be reached from here."""
    with EmbeddedValkey() as valkey:
        yield valkey.url


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """As the folder's own, with Mooncake."""
    with engines(tmp_path_factory.mktemp("mooncake"), NAME) as found:
        yield with_oracle(found)


async def test_text_codes_and_samples_are_transformers_own(stages: Stages, redis_url: str) -> None:
    chain_of = chain_over(redis_url, stages.prefill, stages.decode, stages.talker, [stages.code2wav], connector=NAME)
    async with chain_of as chain:
        before = await sources_of(stages.decode.engine.url)
        answers = await asyncio.gather(*(chain.say(case) for case in stages.oracle))
        after = await sources_of(stages.decode.engine.url)
    expect_transformers_own(stages, answers)
    got = {source: after[source] - before[source] for source in after}
    assert got["external_kv_transfer"] == sum(len(case.prompt) for case in stages.oracle)
    assert got["local_compute"] == 0
