"""NIXL push on real vLLM: the same tokens as one unsplit engine, and KV that prefill wrote into decode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.checking import SALTS, check_split_equals_unsplit, dropping
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.prompts import asks
from tests.real_engines import RealEngines, launch_pair, meet, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

NAME = "NixlPushConnector"


@pytest.fixture(scope="module")
def pushing(
    real_engines: RealEngines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngines]:
    """A prefill and a decode engine that push, beside the unsplit engine of the whole run."""
    with ExitStack() as stack:
        prefill, decode = launch_pair(stack, tiny_model, NAME, tmp_path_factory.mktemp("push"))
        wait_for(prefill, decode)
        meet(prefill, decode)
        yield replace(real_engines, prefill=prefill, decode=decode)
        prefill.child.ask_to_stop()
        decode.child.ask_to_stop()


@pytest.fixture
async def real(pushing: RealEngines, redis_url: str) -> AsyncIterator[Real]:
    async with gateway_over(pushing, redis_url, connector=NAME) as found:
        yield found


async def test_split_and_unsplit_answers_are_equal(real: Real) -> None:
    await check_split_equals_unsplit(real, asks(next(SALTS)))


async def test_the_check_above_fails_when_handoffs_are_dropped(pushing: RealEngines, redis_url: str) -> None:
    async with gateway_over(pushing, redis_url, connector=NAME, kv=dropping(NAME)) as real:
        with pytest.raises(AssertionError, match="local_compute"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[:8])
