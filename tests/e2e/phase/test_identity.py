"""What real engines say of themselves at `GET /duet/identity`."""

from __future__ import annotations

from importlib.metadata import version

import httpx
import pytest

from common.connectors import DEFAULT
from common.phase import CONTRACT_VERSION
from engines.runner.seeds import SEED
from tests.e2e.phase.witnesses import NAME, Witness, Witnesses

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("engine", "connector"), [("prefill", DEFAULT), ("decode", DEFAULT), ("whole", None), ("cramped", None)]
)
async def test_an_engine_says_what_it_is(witnesses: Witnesses, engine: str, connector: str | None) -> None:
    import vllm

    witness: Witness = getattr(witnesses, engine)
    async with httpx.AsyncClient(timeout=60) as client:
        told = (await client.get(f"{witness.engine.url}/duet/identity")).json()
    assert (told.pop("engine_id") is None) == (connector is None)
    assert told == {
        "stage": "thinker",
        "role": witness.engine.role.value,
        "model": NAME,
        "revision": None,
        "connector": connector,
        "tensor_parallel_size": 1,
        "block_size": 32,
        "vllm_version": vllm.__version__,
        "runner": "duet",
        "runner_version": version("duet"),
        "contract_version": CONTRACT_VERSION,
    }


async def test_two_engines_have_ids_of_their_own(witnesses: Witnesses) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        urls = [witness.engine.url for witness in (witnesses.prefill, witnesses.decode)]
        told = [(await client.get(f"{url}/duet/identity")).json()["engine_id"] for url in urls]
    assert told[0] != told[1]


@pytest.mark.parametrize("seed", ["abc", "9" * 30, 1.5])
async def test_a_seed_that_is_none_is_refused_and_the_engine_goes_on(witnesses: Witnesses, seed: object) -> None:
    asked = {"model": NAME, "prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}
    async with httpx.AsyncClient(base_url=witnesses.whole.engine.url, timeout=60) as client:
        refused = await client.post("/v1/completions", json={**asked, "vllm_xargs": {SEED: seed}})
        assert refused.status_code == 400
        assert SEED in refused.json()["error"]["message"]
        assert (await client.post("/v1/completions", json={**asked, "vllm_xargs": {SEED: "7"}})).status_code == 200
