"""From a spec to vLLM's command line and environment.

What CPUs need was found by running it there: eager execution, blocks of 32 tokens (16 fail), float32, a KV cache of a
fixed size, threads that are not bound to cores, one OpenMP thread, and UCX over TCP.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points, version
from typing import NoReturn
from urllib.parse import urlencode

from common.connectors import Connector, connector
from common.engine import Role
from common.errors import ConfigurationError
from common.registry.process import variables
from engines.channel import ENDPOINT
from engines.runner.identity import PLUGIN, ROLE
from engines.runner.runtime import WORKERS
from engines.runner.serve import SERVER
from engines.thinker.address import is_loopback, reached, reached_at
from engines.thinker.spec import EngineSpec, OnDevice

CPU_BLOCK_SIZE = 32
CPU_KV_BLOCKS = 512
CPU_MAX_NUM_SEQS = 16
CPU_KV_GIB = 1
TELLING = {
    "cpu": "engines.thinker.conditioning.cpu.ThinkerCPUWorker",
    "cuda": "engines.thinker.conditioning.gpu.ThinkerGPUWorker",
}
"""Workers that tell a Talker, by device."""


def device_of(spec: OnDevice) -> str:
    """`cpu` or `cuda`: as the spec says, else by whether torch sees a GPU. A build of torch without CUDA is told by its
    version: importing it takes seconds."""
    if spec.device != "auto":
        return spec.device
    if version("torch").endswith("+cpu"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def command(spec: EngineSpec, *, device: str) -> list[str]:
    """vLLM's API server as a module: its own `vllm` command wants a distribution of that name.

    Raises ConfigurationError for a connector that is not known, and for a stock runner that should tell a Talker.
    """
    args = [
        *(sys.executable, "-m", SERVER if spec.runner == "stock" else "engines.runner.serve"),
        *("--model", spec.model, "--host", spec.host, "--port", str(spec.port), "--seed", str(spec.seed)),
        "--enable-prompt-tokens-details",  # `cached_tokens` in usage
    ]
    if spec.served_name is not None:
        args += ["--served-model-name", spec.served_name]
    args += _worker(spec, device)
    if spec.log_requests:
        args += ["--enable-log-requests"]
    if spec.connector is not None:
        config = _connector(spec).engine_config(spec.role, device=device)
        args += ["--kv-transfer-config", json.dumps(config)]
    args += _sizes(spec, device)
    return [*args, *spec.extra]


def _worker(spec: EngineSpec, device: str) -> list[str]:
    """A Thinker that tells a Talker runs without async scheduling, which computes a row for the last sampled id too:
    that one must not be told."""
    if spec.channel is not None:
        if spec.runner != "duet":
            raise ConfigurationError(f"--runner is {spec.runner}: expected duet, as --channel is set")
        return ["--worker-cls", TELLING[device], "--no-async-scheduling"]
    return ["--worker-cls", WORKERS[device]] if spec.runner == "duet" else []


def _sizes(spec: EngineSpec, device: str) -> list[str]:
    cpu = device == "cpu"
    args = ["--enforce-eager"] if cpu else []
    dtype = "float32" if cpu and spec.dtype == "auto" else spec.dtype
    for flag, value in (
        ("--dtype", dtype),
        ("--max-model-len", spec.max_model_len),
        ("--max-num-seqs", spec.max_num_seqs or (CPU_MAX_NUM_SEQS if cpu else None)),
        ("--block-size", spec.block_size or (CPU_BLOCK_SIZE if cpu else None)),
        ("--num-gpu-blocks-override", spec.kv_blocks or (CPU_KV_BLOCKS if cpu else None)),
    ):
        if value is not None:
            args += [flag, str(value)]
    return args


def environment(spec: EngineSpec, *, device: str) -> dict[str, str]:
    """What is added to the environment; a setting that is there already is left alone by `exec_thinker`. Raises
    ConfigurationError for a registry that is none."""
    address = reached_at(spec.host)
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONHASHSEED": "0",  # block hashes are then the same in every engine
        "VLLM_HOST_IP": address,
        "VLLM_PLUGINS": ",".join([*_loaded_anyway(), PLUGIN]),
        ROLE: spec.role.value,
    }
    if spec.runner == "duet":
        env["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the default where Triton works
    if spec.channel is not None:
        env[ENDPOINT] = spec.channel
    if spec.api_key is not None:
        env["VLLM_API_KEY"] = spec.api_key  # not on the command line, where others can read it
    if device == "cpu":
        env |= {
            "VLLM_CPU_KVCACHE_SPACE": str(CPU_KV_GIB),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "UCX_TLS": "tcp,sm,self",
        }
        if is_loopback(address):
            env["UCX_NET_DEVICES"] = "lo"
    if spec.registry is not None:
        env |= variables(spec.registry, _advertised(spec))
    if spec.connector is not None and spec.side_port is not None:
        env |= _connector(spec).engine_env(host=address, side_port=spec.side_port)
    return env


def _advertised(spec: EngineSpec) -> str:
    """Its base URL for gateways, with what they must be told of it."""
    url = spec.advertise or reached(spec.host, spec.port)
    if spec.connector is None or spec.side_port is None or not spec.role.serves(Role.PREFILL) or "?" in url:
        return url
    options = _connector(spec).url_options(side_port=spec.side_port)
    return f"{url}?{urlencode(options)}" if options else url


def _loaded_anyway() -> list[str]:
    """Names of the plugins that vLLM loads while `VLLM_PLUGINS` is not set. Its endpoint plugins must be named there,
    and then so must all others."""
    groups = ("platform_plugins", "general_plugins", "io_processor_plugins", "stat_logger_plugins")
    return sorted({plugin.name for group in groups for plugin in entry_points(group=f"vllm.{group}")})


def exec_thinker(spec: EngineSpec) -> NoReturn:
    """Becomes vLLM."""
    device = device_of(spec)
    become(command(spec, device=device), environment(spec, device=device))


def become(args: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Runs a command in this process's place. What is set in the environment wins over `env`, but not over Duet's own
    variables: those are what flags made of the environment."""
    ours = {name: value for name, value in env.items() if name.startswith("DUET_")}
    os.execvpe(args[0], args, {**env, **os.environ, **ours})


def _connector(spec: EngineSpec) -> Connector:
    assert spec.connector is not None
    return connector(spec.connector, lease=spec.lease)
