"""A Talker as an engine: what is added to a Thinker's command line and environment."""

from __future__ import annotations

from dataclasses import replace

from engines.channel import ENDPOINT
from engines.talker.endpoint import PLUGIN
from engines.thinker.launch import command as engine_command
from engines.thinker.launch import environment as engine_environment
from engines.thinker.spec import EngineSpec

FLAGS = (
    *("--scheduler-cls", "engines.talker.scheduler.TalkerScheduler"),
    *("--worker-extension-cls", "engines.talker.worker.Speaking"),
    "--no-enable-prefix-caching",  # all prompts are the same placeholders
    "--no-async-scheduling",  # a step is scheduled when it is known what it reads
    "--skip-tokenizer-init",
)
OF_DEVICE = {
    "cpu": ("--worker-cls", "engines.talker.cpu.TalkerCPUWorker"),
    "cuda": ("--enable-prompt-embeds",),
}


def command(spec: EngineSpec, *, device: str) -> list[str]:
    """`spec.model` is a folder of `make_talker`. A GPU's graphs are captured for embeddings."""
    own = OF_DEVICE[device]
    return engine_command(replace(spec, connector=None, extra=(*FLAGS, *own, *spec.extra)), device=device)


def environment(spec: EngineSpec, *, device: str, channel: str) -> dict[str, str]:
    """`channel` is where its codes are pulled from: `ipc:///path` or `tcp://host:port`."""
    env = engine_environment(replace(spec, connector=None), device=device)
    return {**env, "VLLM_PLUGINS": f"{env['VLLM_PLUGINS']},{PLUGIN}", ENDPOINT: channel}
