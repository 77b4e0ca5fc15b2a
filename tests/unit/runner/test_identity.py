"""What an engine says of itself at `GET /duet/identity`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import ConfigurationError
from common.phase import CONTRACT_VERSION
from engines.runner.identity import ROLE, IdentityPlugin, identity_of

ROOT = Path(__file__).parents[3]
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
quiet = pytest.mark.filterwarnings("ignore")


class Thinking:
    """A worker that declares what it keeps and what it publishes."""

    phase_contract = CONTRACT_VERSION
    publishes = "thinker"


class Stock:
    pass


def vllm_config(worker: type, kv: Any = None, **hf: Any) -> Any:
    return SimpleNamespace(
        kv_transfer_config=kv,
        parallel_config=SimpleNamespace(
            worker_cls=f"{worker.__module__}.{worker.__qualname__}", tensor_parallel_size=2
        ),
        model_config=SimpleNamespace(revision="abc", hf_config=SimpleNamespace(**hf)),
        cache_config=SimpleNamespace(block_size=32),
        scheduler_config=SimpleNamespace(enable_chunked_prefill=True),
    )


@pytest.fixture
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ROLE, "DUET_CHANNEL"):
        monkeypatch.delenv(name, raising=False)


@needs_vllm
@quiet
@pytest.mark.usefixtures("nothing_told")
async def test_an_engine_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm
    from fastapi import FastAPI
    from httpx import ASGITransport, AsyncClient

    monkeypatch.setenv("DUET_CHANNEL", "tcp://10.0.0.7:7100")
    kv = SimpleNamespace(kv_connector="NixlConnector", kv_role="kv_producer", engine_id="e-1")
    client = SimpleNamespace(vllm_config=vllm_config(Thinking, kv))
    app, plugin = FastAPI(), IdentityPlugin()
    plugin.attach_router(app)
    await plugin.init_state(client, app.state, SimpleNamespace(served_model_name=["m"], model="/m"))  # type: ignore[arg-type]
    async with AsyncClient(transport=ASGITransport(app), base_url="http://engine") as http:
        told = (await http.get("/duet/identity")).json()
    assert told == {
        "stage": "thinker",
        "role": "prefill",
        "model": "m",
        "revision": "abc",
        "connector": "NixlConnector",
        "engine_id": "e-1",
        "tensor_parallel_size": 2,
        "block_size": 32,
        "vllm_version": vllm.__version__,
        "runner": "duet",
        "runner_version": version("duet"),
        "contract_version": CONTRACT_VERSION,
        "channel": "duet+tcp://10.0.0.7:7100",
    }


@needs_vllm
@quiet
@pytest.mark.usefixtures("nothing_told")
def test_a_stock_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_CHANNEL", "tcp://10.0.0.7:7100")
    stock = identity_of(vllm_config(Stock), "m")
    assert (stock["role"], stock["connector"], stock["engine_id"]) == ("both", None, None)
    assert (stock["runner"], stock["runner_version"], stock["contract_version"]) == ("stock", None, None)
    assert "channel" not in stock, "nothing is published by a worker that says nothing of it"
    monkeypatch.setenv(ROLE, "decode")
    assert identity_of(vllm_config(Stock), "m")["role"] == "decode"


@needs_vllm
@quiet
@pytest.mark.usefixtures("nothing_told")
def test_a_worker_that_publishes_must_be_told_where(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"DUET_CHANNEL is not set: expected ipc:///path or tcp://host:port"):
        identity_of(vllm_config(Thinking), "m")
    monkeypatch.setenv("DUET_CHANNEL", "ipc:///run/a b")
    assert identity_of(vllm_config(Thinking), "m")["channel"] == "duet+ipc:///run/a%20b"


@needs_vllm
@quiet
def test_a_talker_says_which_voices_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_CHANNEL", "ipc:///run/x")
    told = identity_of(vllm_config(Thinking, speaker_id={"ethan": 3, "chelsie": 1}), "m")
    assert told["speakers"] == ["ethan", "chelsie"], "the default first, as the model's configuration has it"


OURS = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pkgutil import resolve_name
from tests.unit.runner.test_identity import vllm_config
from engines.runner.identity import identity_of
from engines.runner.runtime import require_phase_contract
told = {}
for name in sys.argv[1:]:
    config = vllm_config(resolve_name(name))
    require_phase_contract(config)
    told[name] = identity_of(config, "m")
print(json.dumps(told))
"""


@needs_vllm
def test_our_workers_keep_the_contract_and_say_what_they_publish() -> None:
    """In a process of its own: importing vLLM's CPU worker changes torch."""
    published = {
        "engines.runner.cpu.PhaseCPUWorker": None,
        "engines.runner.gpu.PhaseGPUWorker": None,
        "engines.thinker.conditioning.cpu.ThinkerCPUWorker": "thinker",
        "engines.thinker.conditioning.gpu.ThinkerGPUWorker": "thinker",
        "engines.talker.cpu.TalkerCPUWorker": "talker",
        "engines.talker.gpu.TalkerGPUWorker": "talker",
    }
    env = {**os.environ, "DUET_CHANNEL": "ipc:///run/x"}
    argv = [sys.executable, "-c", OURS, *published]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, told in json.loads(done.stdout.splitlines()[-1]).items():
        stage = published[name]
        assert (told["stage"], told.get("channel")) == (stage or "thinker", "duet+ipc:///run/x" if stage else None)
        assert (told["runner"], told["runner_version"]) == ("duet", version("duet"))
