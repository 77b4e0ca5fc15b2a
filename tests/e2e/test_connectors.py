"""Each connector on real vLLM: the same tokens as one unsplit engine, and KV that came from the other engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.checking import (
    SALTS,
    all_from_prefill,
    check_split_equals_unsplit,
    dropping,
    full_blocks_from_prefill,
)
from tests.e2e.conftest import gateway_over
from tests.e2e.prompts import asks
from tests.real_engines import RealEngines, launch_pair, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

EXPECTED: dict[str, Callable[[int], Mapping[str, float]]] = {
    "NixlPushConnector": all_from_prefill,
    "ExampleConnector": full_blocks_from_prefill,
    "Multi(NixlConnector, ExampleConnector)": all_from_prefill,
}


@pytest.fixture(scope="module", params=EXPECTED)
def pair(
    request: pytest.FixtureRequest,
    real_engines: RealEngines,
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, RealEngines]]:
    """Two engines with that connector, beside the unsplit engine of the whole run."""
    logs = tmp_path_factory.mktemp("pair")
    before, tempfile.tempdir = tempfile.tempdir, str(logs)  # where connectors over files keep them
    try:
        with ExitStack() as stack:
            prefill, decode = launch_pair(stack, tiny_model, request.param, logs)
            wait_for(prefill, decode)
            yield request.param, replace(real_engines, prefill=prefill, decode=decode)
            prefill.child.ask_to_stop()
            decode.child.ask_to_stop()
    finally:
        tempfile.tempdir = before


async def test_split_and_unsplit_answers_are_equal(pair: tuple[str, RealEngines], redis_url: str) -> None:
    name, engines = pair
    async with gateway_over(engines, redis_url, connector=name) as real:
        asked = asks(next(SALTS))
        if name in ("ExampleConnector", "NixlPushConnector"):
            asked = asked[1:]  # a prompt of one token is refused: see there
        await check_split_equals_unsplit(real, asked, EXPECTED[name])


async def test_the_check_above_fails_when_the_kv_is_lost(pair: tuple[str, RealEngines], redis_url: str) -> None:
    """The handoff is dropped; where there is none, prefill runs on an engine that shares no files."""
    name, engines = pair
    lost = engines
    kv = None
    if name == "ExampleConnector":
        lost = replace(engines, prefill=engines.unsplit)
    elif name == "NixlPushConnector":
        kv = dropping(name)
    else:
        lost, kv = replace(engines, prefill=engines.unsplit), dropping(name)
    async with gateway_over(lost, redis_url, connector=name, kv=kv) as real:
        with pytest.raises(AssertionError, match="local_compute"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[1:8], EXPECTED[name])
