"""What stands around the runner: the journal, the last words, the identity, the plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import ConfigurationError
from engines.runner.errors import MtpInputsMissing
from engines.runner.journal import Journal
from engines.runner.lastwords import VARIABLE, last_words, left
from tests.unit.runner.stage import Stage
from tests.unit.runner.test_contract import TOKENS, arrive

ROOT = Path(__file__).parents[3]
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
quiet = pytest.mark.filterwarnings("ignore")


def test_the_journal_has_every_row_and_every_code(tmp_path: Path) -> None:
    s = Stage()
    path = tmp_path / "phase.log"
    with path.open("a") as file:
        s.runner.journal = Journal(file)
        reference = arrive(s, "r", 3, decoded=2)
        s.step(("r", 0, 6))
    events = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [e for e in events if e["event"] == "row"]
    assert [(e["step"], e["computed"], e["span"], e["num_tokens"]) for e in rows] == [
        (0, 0, 3, 3),
        (1, 3, 1, 4),
        (2, 4, 1, 5),
        (3, 0, 6, 6),
    ]
    assert [(e["is_prefill"], e["mtp"], e["replayed"]) for e in rows] == [
        (True, False, 0),
        (False, True, 0),
        (False, True, 0),
        (True, True, 2),
    ]
    assert [(e["position"], e["codes"]) for e in events if e["event"] == "codes"] == list(reference.codes.items())[:3]
    assert {e["request"] for e in events} == {"r"}
    assert s.requests["r"].output == TOKENS[:3]


def test_there_is_no_journal_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUET_PHASE_LOG", raising=False)
    assert Journal.from_environment() is None


def error(request: str) -> MtpInputsMissing:
    return MtpInputsMissing("nothing came", model="M", requests=[request], rows=[0])


def test_the_first_error_is_the_last_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "words"
    monkeypatch.setenv(VARIABLE, str(path))
    assert left(path) is None
    for request in ("a", "b"):
        with pytest.raises(MtpInputsMissing), last_words():
            raise error(request)
    assert left(path) == "engines.runner.errors.MtpInputsMissing: model M, request a (row 0): nothing came"


def test_other_errors_leave_no_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "words"
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ZeroDivisionError), last_words():
        raise ZeroDivisionError
    assert left(path) is None
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError), last_words():
        raise ConfigurationError("nowhere to leave it")


SERVER = """
import atexit, os, sys
from common.errors import ConfigurationError
from engines.runner.lastwords import leave
atexit.register(print, "the server's own end", file=sys.stderr)
print(sys.argv[1:])
if "--fail" in sys.argv: leave(ConfigurationError("because"))
if "--crash" in sys.argv: raise RuntimeError("something was raised")
"""


@pytest.mark.parametrize(
    ("args", "status", "last"),
    [
        (["--x"], 0, "the server's own end"),
        (["--crash"], 1, "the server's own end"),
        (["--fail"], 1, "common.errors.ConfigurationError: because"),
        (["--fail", "--crash"], 1, "common.errors.ConfigurationError: because"),
    ],
)
def test_the_server_ends_with_the_reason(tmp_path: Path, args: list[str], status: int, last: str) -> None:
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "api_server.py").write_text(SERVER)
    (tmp_path / "tmp").mkdir()
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "TMPDIR": str(tmp_path / "tmp")}
    argv = [sys.executable, "-m", "engines.runner.serve", *args]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (status, str(args))
    assert done.stderr.splitlines()[-1] == last
    assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left behind"


def vllm_config(kv: Any, worker: str) -> Any:
    return SimpleNamespace(
        kv_transfer_config=kv,
        parallel_config=SimpleNamespace(worker_cls=worker, tensor_parallel_size=2),
        model_config=SimpleNamespace(revision="abc"),
        cache_config=SimpleNamespace(block_size=32),
    )


@needs_vllm
@quiet
async def test_an_engine_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm
    from fastapi import FastAPI
    from httpx import ASGITransport, AsyncClient

    from engines.runner.identity import IdentityPlugin

    monkeypatch.delenv("DUET_ENGINE_ROLE", raising=False)
    kv = SimpleNamespace(kv_connector="NixlConnector", kv_role="kv_producer", engine_id="e-1")
    client = SimpleNamespace(vllm_config=vllm_config(kv, "engines.runner.gpu.PhaseGPUWorker"))
    app, plugin = FastAPI(), IdentityPlugin()
    plugin.attach_router(app)
    await plugin.init_state(client, app.state, SimpleNamespace(served_model_name=["m"], model="/m"))  # type: ignore[arg-type]
    async with AsyncClient(transport=ASGITransport(app), base_url="http://engine") as http:
        told = (await http.get("/duet/identity")).json()
    assert told == {
        "role": "prefill",
        "model": "m",
        "revision": "abc",
        "connector": "NixlConnector",
        "engine_id": "e-1",
        "tensor_parallel_size": 2,
        "block_size": 32,
        "vllm_version": vllm.__version__,
        "runner": "duet",
        "runner_version": told["runner_version"],
        "contract_version": "1",
    }
    assert told["runner_version"]


@needs_vllm
@quiet
def test_a_stock_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from engines.runner.identity import identity_of

    monkeypatch.delenv("DUET_ENGINE_ROLE", raising=False)
    stock = identity_of(vllm_config(None, "vllm.v1.worker.gpu_worker.Worker"), "m")
    assert (stock["role"], stock["connector"], stock["engine_id"]) == ("both", None, None)
    assert (stock["runner"], stock["runner_version"], stock["contract_version"]) == ("stock", None, None)
    monkeypatch.setenv("DUET_ENGINE_ROLE", "decode")
    assert identity_of(vllm_config(None, "vllm.v1.worker.gpu_worker.Worker"), "m")["role"] == "decode"


@needs_vllm
@quiet
def test_a_declared_model_is_refused_on_a_worker_that_tells_no_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.model_loader import base_loader, utils

    from engines.runner.errors import RuntimeUnsupported
    from engines.runner.plugin import register

    made = []
    monkeypatch.setattr(base_loader.BaseModelLoader, "create_model", lambda self, *told, **named: made.append(told))
    register()
    wrapped = base_loader.BaseModelLoader.create_model
    register()
    assert base_loader.BaseModelLoader.create_model is wrapped
    plain, needy = type("Plain", (), {}), type("Needy", (), {"requires_phase_contract": True})
    monkeypatch.setattr(utils, "get_model_architecture", lambda config: (config, "arch"))
    stock = vllm_config(None, "vllm.v1.worker.gpu_worker.Worker")
    stock.scheduler_config = SimpleNamespace(enable_chunked_prefill=True)
    wrapped(None, stock, plain)
    with pytest.raises(RuntimeUnsupported, match="tells a model no phase"):
        wrapped(None, stock, needy)
    wrapped(None, vllm_config(None, "engines.runner.gpu.PhaseGPUWorker"), needy)
    assert [told[1] for told in made] == [plain, needy]
