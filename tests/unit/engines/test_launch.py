"""From a spec to what vLLM is started with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from common.engine import Role
from common.errors import ConfigurationError
from engines.code2wav import launch as code2wav_launch
from engines.code2wav.launch import Code2WavSpec
from engines.talker import launch as talker_launch
from engines.thinker import EngineSpec, command, environment

ROOT = Path(__file__).parents[3]
PREFILL = EngineSpec("/models/m", Role.PREFILL, 8100, side_port=8101, lease=12.0)
PLAIN = EngineSpec("/models/m", Role.BOTH, 8100, connector=None)


def flags(argv: list[str]) -> dict[str, str | None]:
    """Each flag with its value, None for one that has none."""
    found: dict[str, str | None] = {}
    for arg, following in zip(argv, [*argv[1:], "--"], strict=True):
        if arg.startswith("--"):
            found[arg] = None if following.startswith("--") else following
    return found


def test_a_prefill_engine_on_cpus() -> None:
    given = flags(command(PREFILL, device="cpu"))
    config = json.loads(given.pop("--kv-transfer-config") or "")
    assert config["kv_role"] == "kv_producer"
    assert config["kv_buffer_device"] == "cpu"
    assert config["kv_load_failure_policy"] == "fail"
    assert config["kv_connector_extra_config"]["kv_lease_duration"] == 12.0
    assert given == {
        "--model": "/models/m",
        "--host": "127.0.0.1",
        "--port": "8100",
        "--seed": "0",
        "--enable-prompt-tokens-details": None,
        "--enforce-eager": None,
        "--dtype": "float32",
        "--max-num-seqs": "16",
        "--block-size": "32",
        "--num-gpu-blocks-override": "512",
        "--worker-cls": "engines.runner.cpu.PhaseCPUWorker",
    }


def test_a_gpu_is_left_to_vllm() -> None:
    given = flags(command(PREFILL, device="cuda"))
    config = json.loads(given.pop("--kv-transfer-config") or "")
    assert config["kv_buffer_device"] == "cuda"
    assert given.pop("--dtype") == "auto"
    assert given.pop("--worker-cls") == "engines.runner.gpu.PhaseGPUWorker"
    assert set(given) == {"--model", "--host", "--port", "--seed", "--enable-prompt-tokens-details"}
    added = environment(PREFILL, device="cuda")
    assert not {name for name in added if "CPU" in name or name.startswith(("UCX", "OMP"))}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_models_are_told_phases_unless_it_is_to_be_stock(device: str) -> None:
    ours, stock = command(PREFILL, device=device), command(replace(PREFILL, runner="stock"), device=device)
    assert ours[1:3] == ["-m", "engines.runner.serve"]
    assert stock[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert set(flags(ours)) - set(flags(stock)) == {"--worker-cls"}
    assert environment(PREFILL, device=device)["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert "VLLM_USE_V2_MODEL_RUNNER" not in environment(replace(PREFILL, runner="stock"), device=device)


def test_an_engine_tells_who_it_is_and_loads_no_fewer_plugins() -> None:
    added = environment(PREFILL, device="cpu")
    named = added["VLLM_PLUGINS"].split(",")
    assert "duet_identity" in named
    assert {plugin.name for plugin in entry_points(group="vllm.general_plugins")} <= set(named)
    assert added["DUET_ENGINE_ROLE"] == "prefill"


@pytest.mark.parametrize(
    ("role", "expected"), [(Role.PREFILL, "kv_producer"), (Role.DECODE, "kv_consumer"), (Role.BOTH, "kv_both")]
)
def test_roles(role: Role, expected: str) -> None:
    argv = command(replace(PREFILL, role=role), device="cpu")
    assert json.loads(flags(argv)["--kv-transfer-config"] or "")["kv_role"] == expected


def test_an_engine_outside_a_split_has_no_connector() -> None:
    assert "--kv-transfer-config" not in command(PLAIN, device="cpu")
    assert not {name for name in environment(PLAIN, device="cpu") if "SIDE_CHANNEL" in name}


def test_a_connector_that_is_not_known() -> None:
    with pytest.raises(ConfigurationError, match="carrier-pigeon"):
        command(replace(PREFILL, connector="carrier-pigeon"), device="cpu")


def test_what_is_asked_for_is_passed_on() -> None:
    spec = replace(
        PLAIN,
        served_name="m",
        dtype="bfloat16",
        max_model_len=1000,
        max_num_seqs=3,
        block_size=64,
        kv_blocks=99,
        seed=7,
        log_requests=True,
    )
    given = flags(command(spec, device="cpu"))
    assert given["--served-model-name"] == "m"
    assert given["--dtype"] == "bfloat16"
    assert given["--max-model-len"] == "1000"
    assert given["--max-num-seqs"] == "3"
    assert given["--block-size"] == "64"
    assert given["--num-gpu-blocks-override"] == "99"
    assert given["--seed"] == "7"
    assert "--enable-log-requests" in given


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_thinker_with_a_channel_tells_a_talker(device: str) -> None:
    telling = replace(PREFILL, channel="ipc:///run/rows")
    given = flags(command(telling, device=device))
    assert "engines.thinker.conditioning." in (given["--worker-cls"] or "")
    assert "--no-async-scheduling" in given
    assert environment(telling, device=device)["DUET_CHANNEL"] == "ipc:///run/rows"
    assert "--no-async-scheduling" not in command(PREFILL, device=device)
    assert "DUET_CHANNEL" not in environment(PREFILL, device=device)


def test_a_stock_runner_tells_nobody() -> None:
    with pytest.raises(ConfigurationError, match="--runner is stock: expected duet, as --channel is set"):
        command(replace(PREFILL, runner="stock", channel="ipc:///run/rows"), device="cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_talker(device: str) -> None:
    spec = replace(PREFILL, channel="ipc:///run/codes", extra=("--seed", "7"))
    argv = talker_launch.command(spec, device=device)
    given = flags(argv)
    assert "engines.talker." in (given["--worker-cls"] or "")
    assert given["--scheduler-cls"] == "engines.talker.scheduler.TalkerScheduler"
    assert {"--no-enable-prefix-caching", "--no-async-scheduling", "--skip-tokenizer-init"} <= set(given)
    assert "--kv-transfer-config" not in given
    assert argv[-2:] == ["--seed", "7"]
    added = talker_launch.environment(spec, device=device)
    assert {"duet_identity", "duet_speech"} <= set(added["VLLM_PLUGINS"].split(","))
    assert added["DUET_CHANNEL"] == "ipc:///run/codes"
    with pytest.raises(ConfigurationError, match="--channel is not set"):
        talker_launch.environment(replace(spec, channel=None), device=device)


def test_a_code2wav_and_its_key() -> None:
    spec = Code2WavSpec("/m", 8400, served_name="m", dtype="float32", chunk=10, api_key="hush")
    argv = code2wav_launch.command(spec, device="cpu")
    assert argv[1:4] == ["-m", "engines.code2wav", "/m"]
    assert flags(argv) == {
        "--host": "127.0.0.1",
        "--port": "8400",
        "--served-name": "m",
        "--device": "cpu",
        "--dtype": "float32",
        "--chunk": "10",
    }
    assert code2wav_launch.environment(spec, device="cpu")["DUET_ENGINE_API_KEY"] == "hush"
    assert "OMP_NUM_THREADS" not in code2wav_launch.environment(spec, device="cuda")


def test_further_arguments_come_last() -> None:
    argv = command(replace(PREFILL, extra=("--block-size", "128")), device="cpu")
    assert argv[-2:] == ["--block-size", "128"]


def test_a_key_is_not_on_the_command_line() -> None:
    spec = replace(PREFILL, api_key="hush")
    assert "hush" not in " ".join(command(spec, device="cpu"))
    assert environment(spec, device="cpu")["VLLM_API_KEY"] == "hush"


def test_the_connectors_port_is_its_own() -> None:
    added = environment(PREFILL, device="cpu")
    assert added["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "8101"
    assert added["VLLM_NIXL_SIDE_CHANNEL_HOST"] == added["VLLM_HOST_IP"] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_ucx_keeps_to_the_loopback_only_there(host: str) -> None:
    assert environment(replace(PREFILL, host=host), device="cpu")["UCX_NET_DEVICES"] == "lo"
    assert "UCX_NET_DEVICES" not in environment(replace(PREFILL, host="192.0.2.7"), device="cpu")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_addresses_is_none_that_a_peer_can_reach(host: str) -> None:
    spec = replace(PREFILL, host=host)
    assert flags(command(spec, device="cpu"))["--host"] == host
    added = environment(spec, device="cpu")
    assert added["VLLM_NIXL_SIDE_CHANNEL_HOST"] == added["VLLM_HOST_IP"]
    assert added["VLLM_HOST_IP"] not in ("", "0.0.0.0", "::")


SERVER = """
import json, os, sys
names = ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "DUET_CHANNEL")
print(json.dumps({"pid": os.getpid(), "argv": sys.argv[1:], "env": {n: os.environ[n] for n in names}}))
"""


def test_exec_becomes_vllm_and_leaves_what_the_environment_says_but_for_flags(tmp_path: Path) -> None:
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "api_server.py").write_text(SERVER)
    code = (
        "import os; os.environ['DUET_CHANNEL'] = 'outer'; from common.engine import Role\n"
        "from engines.thinker import EngineSpec, exec_thinker\n"
        "print(os.getpid(), flush=True)\n"
        "exec_thinker(EngineSpec('m', Role.DECODE, 8200, device='cpu', channel='flag', extra=('--x',)))"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "5"}
    env.pop("HF_HUB_OFFLINE", None)
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    pid, said = out.splitlines()
    seen = json.loads(said)
    assert seen["pid"] == int(pid)
    assert seen["env"] == {"OMP_NUM_THREADS": "5", "HF_HUB_OFFLINE": "1", "DUET_CHANNEL": "flag"}
    assert seen["argv"][0] == "--model"
    assert seen["argv"][-1] == "--x"


def test_an_engine_announces_itself_where_it_is_reached() -> None:
    spec = replace(PREFILL, registry="redis://r:6379/0")
    added = environment(spec, device="cpu")
    assert (added["DUET_REGISTRY_URL"], added["DUET_ADVERTISE"]) == ("redis://r:6379/0", "http://127.0.0.1:8100")
    assert added["DUET_ENGINE_LIFE"] != environment(spec, device="cpu")["DUET_ENGINE_LIFE"]
    named = environment(replace(spec, advertise="http://engine-1:80"), device="cpu")
    assert named["DUET_ADVERTISE"] == "http://engine-1:80"
    told = environment(replace(spec, connector="mooncake"), device="cpu")["DUET_ADVERTISE"]
    assert told == "http://127.0.0.1:8100?bootstrap_port=8101", "what its connector must be told goes with it"
    vocoder = Code2WavSpec("/m", 8400, registry="redis://r:6379/0", host="::1")
    assert code2wav_launch.environment(vocoder, device="cpu")["DUET_ADVERTISE"] == "http://[::1]:8400"
    assert not {name for name in environment(PREFILL, device="cpu") if name.startswith(("DUET_REG", "DUET_ADV"))}
    for wrong in ({"registry": "http://r"}, {"advertise": "engine-1"}):
        with pytest.raises(ConfigurationError):
            environment(replace(spec, **wrong), device="cpu")
