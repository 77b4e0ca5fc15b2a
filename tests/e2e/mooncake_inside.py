"""Mooncake on real vLLM, for a process in a network namespace of its own: `test_mooncake.py` runs this there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from common.connectors.base import Lookup
from common.connectors.mooncake import MooncakeConnector
from common.engine import Engine, Role
from common.valkey import EmbeddedValkey
from tests.e2e.checking import SALTS, check_split_equals_unsplit, dropping
from tests.e2e.conftest import gateway_over
from tests.e2e.prompts import asks
from tests.real_engines import RealEngines, launch, launch_pair, spec_of, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NAME = MooncakeConnector.name


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """By a socket in a directory: nothing that stands outside can be reached from here."""
    with EmbeddedValkey() as valkey:
        yield valkey.url


@pytest.fixture(scope="module")
def engines(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngines]:
    logs = tmp_path_factory.mktemp("mooncake")
    with ExitStack() as stack:
        unsplit = launch(stack, spec_of(tiny_model, Role.BOTH, None), logs / "unsplit.log")
        prefill, decode = launch_pair(stack, tiny_model, NAME, logs)
        wait_for(prefill, decode, unsplit)
        yield RealEngines("tiny", prefill, decode, unsplit)
        for engine in (prefill, decode, unsplit):
            engine.child.ask_to_stop()


async def test_split_and_unsplit_answers_are_equal_and_all_kv_came_from_prefill(
    engines: RealEngines, redis_url: str
) -> None:
    async with gateway_over(engines, redis_url, connector=NAME) as real:
        await check_split_equals_unsplit(real, asks(next(SALTS)))


async def test_the_check_above_fails_when_handoffs_are_dropped(engines: RealEngines, redis_url: str) -> None:
    async with gateway_over(engines, redis_url, kv=dropping(NAME)) as real:
        with pytest.raises(AssertionError, match="local_compute"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[:4])


class Unasked(MooncakeConnector):
    """Never asks the bootstrap server."""

    def lookup(self, prefill: Engine) -> Lookup | None:
        return None


async def test_without_the_query_a_request_is_refused_and_says_why(engines: RealEngines, redis_url: str) -> None:
    """Not run without KV: that would be an answer that looks well."""
    async with gateway_over(engines, redis_url, kv=Unasked()) as real:
        before = await real.sources()
        with pytest.raises(AssertionError, match=r"is not known; expected one from .*/query"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[4:5])
        assert await real.sources() == before
