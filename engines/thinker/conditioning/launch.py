"""A Thinker that tells a Talker: what is added to its command line and environment."""

from __future__ import annotations

from dataclasses import replace

from engines.channel import ENDPOINT
from engines.thinker.launch import command as engine_command
from engines.thinker.launch import environment as engine_environment
from engines.thinker.spec import EngineSpec

WORKERS = {
    "cpu": "engines.thinker.conditioning.cpu.ThinkerCPUWorker",
    "cuda": "engines.thinker.conditioning.gpu.ThinkerGPUWorker",
}


def command(spec: EngineSpec, *, device: str) -> list[str]:
    """Without async scheduling: it computes a row for the last sampled id too, which must not be told."""
    flags = ("--worker-cls", WORKERS[device], "--no-async-scheduling")
    return engine_command(replace(spec, extra=(*flags, *spec.extra)), device=device)


def environment(spec: EngineSpec, *, device: str, channel: str) -> dict[str, str]:
    """`channel` is where its rows are pulled from: `ipc:///path` or `tcp://host:port`."""
    return {**engine_environment(spec, device=device), ENDPOINT: channel}
