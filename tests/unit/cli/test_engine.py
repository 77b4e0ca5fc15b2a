from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from common.connectors import DEFAULT
from common.engine import Role
from engines.code2wav.launch import Code2WavSpec
from engines.talker import talker_folder
from engines.talker.names import MODEL_TYPE
from engines.thinker import EngineSpec


class Exec:
    """Stands for `exec_thinker` and its like: keeps the spec instead of becoming the engine."""

    def __init__(self) -> None:
        self.spec: Any = None

    def __call__(self, spec: Any) -> None:
        self.spec = spec


@pytest.fixture
def execs(monkeypatch: pytest.MonkeyPatch) -> Exec:
    fake = Exec()
    monkeypatch.setattr("engines.thinker.exec_thinker", fake)
    monkeypatch.setattr("engines.talker.launch.exec_talker", fake)
    monkeypatch.setattr("engines.code2wav.launch.exec_code2wav", fake)
    monkeypatch.setattr("cli.engine.options.require_torch", lambda: None)
    monkeypatch.setattr("cli.engine.options.require_vllm", lambda: None)
    return fake


def engine(*args: str) -> Result:
    return CliRunner().invoke(app, ["engine", *args])


def thinker(*args: str) -> Result:
    return engine("thinker", *args)


@pytest.fixture
def omni(tmp_path: Path) -> Path:
    """A folder that looks like a Qwen3-Omni, the Talker of which was taken out before."""
    folder = tmp_path / "my-omni"
    folder.mkdir()
    (folder / "config.json").write_text('{"talker_config": {}, "code2wav_config": {}}')
    talker_folder(folder).mkdir()
    return folder


def test_every_flag(execs: Exec) -> None:
    result = thinker(
        *("--role", "prefill", "--model", "/m", "--port", "9000", "--host", "0.0.0.0", "--served-name", "m"),
        *("--connector", "NixlConnector", "--lease", "12", "--side-port", "9500", "--device", "cpu"),
        *("--runner", "duet", "--channel", "ipc:///run/rows"),
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
        runner="duet",
        channel="ipc:///run/rows",
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
    ("flags", "channel"),
    [
        (["--host", "127.0.0.1", "--port", "8200", "--channel", "auto"], "tcp://127.0.0.1:10200"),
        (["--host", "::1", "--channel", "auto"], "tcp://[::1]:10100"),
        (["--channel", "tcp://10.0.0.7:7100"], "tcp://10.0.0.7:7100"),
        ([], None),
    ],
)
def test_where_a_thinker_tells_a_talker(execs: Exec, flags: list[str], channel: str | None) -> None:
    assert thinker("--role", "decode", "--model", "/m", *flags).exit_code == 0
    assert execs.spec.channel == channel


def test_the_channel_may_come_from_the_environment(execs: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_CHANNEL", "ipc:///run/environment")
    assert thinker("--role", "decode", "--model", "/m").exit_code == 0
    assert execs.spec.channel == "ipc:///run/environment"
    assert thinker("--role", "decode", "--model", "/m", "--channel", "ipc:///run/flag").exit_code == 0
    assert execs.spec.channel == "ipc:///run/flag"


def test_a_talker_out_of_a_whole_model(execs: Exec, omni: Path) -> None:
    result = engine(
        *("talker", "--model", str(omni), "--port", "9300", "--served-name", "m", "--channel", "ipc:///run/codes"),
        *("--device", "cpu", "--max-model-len", "1024", "--max-num-seqs", "4", "--api-key", "k", "--log-requests"),
        *("--", "--seed", "7"),
    )
    assert result.exit_code == 0, result.output
    assert execs.spec == EngineSpec(
        model=str(talker_folder(omni)),
        role=Role.BOTH,
        port=9300,
        served_name="m",
        connector=None,
        channel="ipc:///run/codes",
        device="cpu",
        max_model_len=1024,
        max_num_seqs=4,
        api_key="k",
        log_requests=True,
        extra=("--seed", "7"),
    )


def test_a_talker_has_the_models_name_and_a_channel_if_nothing_is_said(execs: Exec, omni: Path) -> None:
    assert engine("talker", "--model", str(omni)).exit_code == 0
    assert (execs.spec.served_name, execs.spec.port) == ("my-omni", 8300)
    assert execs.spec.channel == "tcp://127.0.0.1:10300"


def test_a_talkers_own_folder_is_taken_as_it_is(execs: Exec, tmp_path: Path) -> None:
    config = {"model_type": MODEL_TYPE, "thinker_vocab_size": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert engine("talker", "--model", str(tmp_path)).exit_code == 0
    assert execs.spec.model == str(tmp_path)


def test_a_code2wav(execs: Exec, omni: Path) -> None:
    flags = ("--host", "0.0.0.0", "--port", "9400", "--served-name", "m", "--device", "cpu", "--dtype", "float32")
    chunks = ("--first-chunk", "2", "--chunk", "10", "--left-context", "20", "--max-batch", "3", "--api-key", "k")
    result = engine("code2wav", "--model", str(omni), *flags, *chunks)
    assert result.exit_code == 0, result.output
    assert execs.spec == Code2WavSpec(
        model=str(omni),
        port=9400,
        host="0.0.0.0",
        served_name="m",
        device="cpu",
        dtype="float32",
        first_chunk=2,
        chunk=10,
        left_context=20,
        max_batch=3,
        api_key="k",
    )
    assert engine("code2wav", "--model", str(omni)).exit_code == 0
    assert execs.spec == Code2WavSpec(model=str(omni), port=8400, served_name="my-omni")


@pytest.mark.parametrize("name", ["talker", "code2wav"])
def test_a_model_that_does_not_speak(execs: Exec, name: str, tmp_path: Path) -> None:
    for content, said in ((None, "cannot be read"), ("{}", f"has no {name}_config: expected"), ("[]", "has no")):
        if content is not None:
            (tmp_path / "config.json").write_text(content)
        result = engine(name, "--model", str(tmp_path))
        assert result.exit_code == 2
        assert said in result.stderr
    assert execs.spec is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "/m"], "Missing option '--role'"),
        (["--role", "talker", "--model", "/m"], "'talker' is not one of 'prefill', 'decode', 'both'"),
        (
            ["--role", "both", "--model", "/m", "--channel", "udp://x"],
            "--channel: channel endpoint 'udp://x': expected",
        ),
        (
            ["--role", "both", "--model", "/m", "--port", "64000", "--channel", "auto"],
            "--channel is needed: --port 64000",
        ),
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


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--role", "prefill", "--connector", "none"],
            "this engine (thinker prefill) has no kv_transfer_config, and is one side of a split with another engine",
        ),
        (
            ["--role", "prefill", "--", "--kv-transfer-config.kv_role", "kv_consumer"],
            "duet: the kv_transfer_config of this engine (thinker prefill) names no kv_connector",
        ),
        (
            ["--role", "decode", "--", "--kv-transfer-config", '{"kv_connector": "NixlConnector"}'],
            "this engine (thinker decode) has kv_role None; expected kv_consumer or kv_both",
        ),
        (
            ["--role", "decode", "--", '--kv-transfer-config={"kv_connector": "Nixel", "kv_role": "kv_both"}'],
            "connector 'Nixel' is not known",
        ),
        (
            ["--role", "prefill", "--side-port", "8099", "--", "-dp", "2"],
            "ports collide: port 8100 and side_port 8099 to 8100 of this engine (thinker prefill) listen on the same",
        ),
    ],
)
def test_a_rule_that_a_thinker_breaks_alone(execs: Exec, args: list[str], said: str) -> None:
    result = thinker("--model", "/m", *args)
    assert (result.exit_code, execs.spec) == (2, None)
    assert said in result.stderr


def test_a_value_that_is_none_is_left_to_vllm(execs: Exec) -> None:
    wrong = ["--kv-transfer-config", "5", "-dp", "many", "--port", "none"]
    assert thinker("--role", "prefill", "--model", "/m", "--", *wrong).exit_code == 0
    assert execs.spec.extra == tuple(wrong)


@pytest.mark.parametrize(
    "args", [["--enable-prefix-caching"], ["--no-enable-prefix-caching", "--enable_prefix_caching"]]
)
def test_a_talker_does_not_cache_prefixes(execs: Exec, omni: Path, args: list[str]) -> None:
    result = engine("talker", "--model", str(omni), "--", *args)
    assert (result.exit_code, execs.spec) == (2, None)
    assert "this engine (talker) has enable_prefix_caching true; expected false" in result.stderr
    assert engine("talker", "--model", str(omni), "--", *args, "--no-enable-prefix-caching").exit_code == 0


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = thinker("--role", "both", "--model", "/m")
    assert result.exit_code == 2
    assert result.stderr == "duet: vLLM is not installed: install duet[engine-cpu] or duet[engine-gpu]\n"
