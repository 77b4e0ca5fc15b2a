"""A Talker as an engine: what is added to a Thinker's command line and environment."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from common.errors import ConfigurationError
from engines.talker.names import SPEECH_PLUGIN
from engines.thinker.launch import become, device_of
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
    "cuda": ("--worker-cls", "engines.talker.gpu.TalkerGPUWorker", "--enable-prompt-embeds"),
}


def command(spec: EngineSpec, *, device: str) -> list[str]:
    """`spec.model` is a folder of `make_talker`. A GPU's graphs are captured for embeddings."""
    own = OF_DEVICE[device]
    bare = replace(spec, connector=None, channel=None)
    return engine_command(replace(bare, extra=(*FLAGS, *own, *spec.extra)), device=device)


def environment(spec: EngineSpec, *, device: str) -> dict[str, str]:
    """`spec.channel` is where its codes are pulled from. Raises ConfigurationError if there is none."""
    if spec.channel is None:
        raise ConfigurationError("--channel is not set: expected ipc:///path or tcp://host:port, to publish codes at")
    env = engine_environment(replace(spec, connector=None), device=device)
    return {**env, "VLLM_PLUGINS": f"{env['VLLM_PLUGINS']},{SPEECH_PLUGIN}"}


def exec_talker(spec: EngineSpec) -> NoReturn:
    """Becomes vLLM."""
    device = device_of(spec)
    become(command(spec, device=device), environment(spec, device=device))
