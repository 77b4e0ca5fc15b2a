"""Code2Wav as a process: its command line and environment, as `engines/thinker/launch.py` has a Thinker's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NoReturn

from common.registry.process import variables
from engines.code2wav.identity import API_KEY
from engines.thinker.address import reached
from engines.thinker.launch import become, device_of


@dataclass(frozen=True, slots=True)
class Code2WavSpec:
    """`model` is the folder of a whole Qwen3-Omni. Chunks and context are frames of 80 ms, `max_batch` is chunks that
    are decoded together; None leaves it to the server. `dtype` "auto" is float32 on CPUs and bfloat16 on a GPU."""

    model: str
    port: int
    host: str = "127.0.0.1"
    served_name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    first_chunk: int | None = None
    chunk: int | None = None
    left_context: int | None = None
    max_batch: int | None = None
    api_key: str | None = None
    registry: str | None = None
    """URL of the Redis in which it announces itself; None for nowhere."""
    advertise: str | None = None
    """Base URL at which gateways reach it; its host and port if None."""


def command(spec: Code2WavSpec, *, device: str) -> list[str]:
    args = [sys.executable, "-m", "engines.code2wav", spec.model, "--host", spec.host, "--port", str(spec.port)]
    for flag, value in (
        ("--served-name", spec.served_name),
        ("--device", device),
        ("--dtype", None if spec.dtype == "auto" else spec.dtype),
        ("--first-chunk", spec.first_chunk),
        ("--chunk", spec.chunk),
        ("--left-context", spec.left_context),
        ("--max-batch", spec.max_batch),
    ):
        if value is not None:
            args += [flag, str(value)]
    return args


def environment(spec: Code2WavSpec, *, device: str) -> dict[str, str]:
    """What is added to the environment. A key is not on the command line, where others can read it."""
    env = {"HF_HUB_OFFLINE": "1"}
    if device == "cpu":
        env["OMP_NUM_THREADS"] = "1"  # as engines have: several on a busy machine wait for each other
    if spec.api_key is not None:
        env[API_KEY] = spec.api_key
    if spec.registry is not None:
        env |= variables(spec.registry, spec.advertise or reached(spec.host, spec.port))
    return env


def exec_code2wav(spec: Code2WavSpec) -> NoReturn:
    """Becomes the server."""
    device = device_of(spec)
    become(command(spec, device=device), environment(spec, device=device))
