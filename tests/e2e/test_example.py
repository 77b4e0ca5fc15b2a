"""vLLM's ExampleConnector on real engines: decode finds by itself the full blocks that prefill wrote to files."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from common.connectors.example import ExampleConnector
from tests.e2e.checking import SALTS, answer, check_split_equals_unsplit
from tests.e2e.conftest import gateway_over
from tests.e2e.prompts import BLOCK, Ask, asks
from tests.real_engines import RealEngines, launch_pair, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NAME = ExampleConnector.name
PATH = "/v1/completions"


def full_blocks_from_prefill(prompt_tokens: int) -> Mapping[str, float]:
    """What decode's counters must grow by. A prompt of one token more than its blocks is not looked for
    (`engines/compat/example.py`); of others, one token at least is left to compute."""
    loaded = 0 if prompt_tokens % BLOCK == 1 else (prompt_tokens - 1) // BLOCK * BLOCK
    return {"local_compute": prompt_tokens - loaded, "local_cache_hit": 0, "external_kv_transfer": loaded}


@pytest.fixture(scope="module")
def engines(
    real_engines: RealEngines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngines]:
    """A pair with this connector, beside the unsplit engine of the whole run. The files go where tests keep theirs."""
    directory = tmp_path_factory.mktemp("example")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(tempfile, "tempdir", str(directory))
        prefill, decode = launch_pair(stack, tiny_model, NAME, directory)
        wait_for(prefill, decode)
        yield replace(real_engines, prefill=prefill, decode=decode)
        for engine in (prefill, decode):
            engine.child.ask_to_stop()


async def test_split_and_unsplit_answers_are_equal_and_full_blocks_came_from_prefill(
    engines: RealEngines, redis_url: str
) -> None:
    asked = [ask for ask in asks(next(SALTS)) if ask.name != "1 tokens"]
    async with gateway_over(engines, redis_url, connector=NAME) as real:
        await check_split_equals_unsplit(real, asked, full_blocks_from_prefill)


async def test_the_check_above_fails_when_prefill_writes_no_files(engines: RealEngines, redis_url: str) -> None:
    """Prefill runs on the engine without a connector: there is no handoff that could be dropped."""
    async with gateway_over(replace(engines, prefill=engines.unsplit), redis_url, connector=NAME) as real:
        with pytest.raises(AssertionError, match="did not come from where they should"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[7:8], full_blocks_from_prefill)


async def test_a_prompt_of_one_token_is_refused_and_both_engines_live(engines: RealEngines, redis_url: str) -> None:
    async with gateway_over(engines, redis_url, connector=NAME) as real:
        refused = await real.client.post("/v1/completions", json={"model": "tiny", "prompt": [7], "max_tokens": 4})
        assert refused.status_code == 502, refused.text
        assert "the prompt has 1 token" in refused.json()["error"]["message"]
        await check_split_equals_unsplit(real, asks(next(SALTS))[7:8], full_blocks_from_prefill)


async def test_a_conversation_that_grows_past_a_block_and_is_asked_again(engines: RealEngines, redis_url: str) -> None:
    """Files of its beginning are there, and both engines have it in their prefix caches. Stock vLLM dies of 65."""
    rng = random.Random(next(SALTS))
    prompt = [rng.randrange(3, 1000) for _ in range(2 * BLOCK + 2)]
    async with gateway_over(engines, redis_url, connector=NAME) as real:
        for length in (BLOCK, BLOCK + 1, BLOCK + 8, 2 * BLOCK + 1, 2 * BLOCK + 2):
            body = {"prompt": prompt[:length], "temperature": 0, "max_tokens": 6}
            for _ in range(2):
                split, whole = [await answer(c, Ask("", PATH, body), "tiny") for c in (real.client, real.whole)]
                assert split.tokens == whole.tokens, length
