from __future__ import annotations

import importlib.util

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from common.connectors import DEFAULT
from common.engine import Role
from engines.thinker import EngineSpec


class Exec:
    """Stands for `exec_thinker`: keeps the spec instead of becoming vLLM."""

    def __init__(self) -> None:
        self.spec: EngineSpec | None = None

    def __call__(self, spec: EngineSpec) -> None:
        self.spec = spec


@pytest.fixture
def execs(monkeypatch: pytest.MonkeyPatch) -> Exec:
    fake = Exec()
    monkeypatch.setattr("engines.thinker.exec_thinker", fake)
    monkeypatch.setattr("cli.engine.require_vllm", lambda: None)
    return fake


def thinker(*args: str) -> Result:
    return CliRunner().invoke(app, ["engine", "thinker", *args])


def test_every_flag(execs: Exec) -> None:
    result = thinker(
        *("--role", "prefill", "--model", "/m", "--port", "9000", "--host", "0.0.0.0", "--served-name", "m"),
        *("--connector", "NixlConnector", "--lease", "12", "--side-port", "9500", "--device", "cpu"),
        *("--runner", "stock"),
        *("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "4", "--block-size", "64"),
        *("--kv-blocks", "100", "--api-key", "k", "--log-requests"),
        *("--", "--seed", "7", "--enable-scale-out"),
    )
    assert result.exit_code == 0, result.output
    assert execs.spec == EngineSpec(
        model="/m",
        role=Role.PREFILL,
        port=9000,
        host="0.0.0.0",
        served_name="m",
        connector="NixlConnector",
        lease=12,
        side_port=9500,
        runner="stock",
        device="cpu",
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=4,
        block_size=64,
        kv_blocks=100,
        log_requests=True,
        api_key="k",
        extra=("--seed", "7", "--enable-scale-out"),
    )


def test_defaults(execs: Exec) -> None:
    assert thinker("--role", "decode", "--model", "/m").exit_code == 0
    assert execs.spec == EngineSpec(model="/m", role=Role.DECODE, port=8100, connector=DEFAULT, side_port=9100)


def test_an_engine_outside_a_split(execs: Exec) -> None:
    assert thinker("--role", "both", "--model", "/m", "--connector", "None").exit_code == 0
    assert execs.spec is not None
    assert execs.spec.connector is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "/m"], "Missing option '--role'"),
        (["--role", "talker", "--model", "/m"], "'talker' is not one of 'prefill', 'decode', 'both'"),
        (["--role", "both", "--model", "/m", "--prot", "1"], "No such option: --prot"),
        (["--role", "both", "--model", "/m", "--device", "tpu"], "--device 'tpu': expected auto, cpu or cuda"),
        (["--role", "both", "--model", "/m", "--port", "65000"], "--side-port is needed: --port 65000 + 1000"),
    ],
)
def test_a_wrong_flag(execs: Exec, args: list[str], said: str) -> None:
    result = thinker(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert execs.spec is None


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = thinker("--role", "both", "--model", "/m")
    assert result.exit_code == 2
    assert result.stderr == "duet: vLLM is not installed: install duet[engine-cpu] or duet[engine-gpu]\n"
