"""The four engines of speech as the command line starts them, with the tiny Qwen3-Omni."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.channel.reference import Key, Reference
from common.connectors import DEFAULT
from common.engine import Role
from common.ports import free_ports
from common.process import Child
from tests.contract.talker.oracle import Case
from tests.real_engines import RealEngine, spec_of

ONLY_SOUND = ("--limit-mm-per-prompt", '{"audio": 1, "image": 0, "video": 0}')


@dataclass(frozen=True)
class Stage:
    """One engine, and where its rows are pulled from."""

    engine: RealEngine
    channel: str

    def stream(self, request: str, stage: str) -> Reference:
        return Reference(self.channel, Key(request, stage))


@dataclass(frozen=True)
class Stages:
    """`whole` is transformers' Code2Wav over all codes at once: `[frames][16]` to float32 `[samples]`. `omni` and
    `talker_model` are the models' folders."""

    prefill: Stage
    decode: Stage
    talker: Stage
    code2wav: RealEngine
    oracle: list[Case]
    whole: Callable[[Sequence[Sequence[int]]], Any]
    omni: Path
    talker_model: Path


def thinker(stack: ExitStack, model: Path, role: Role, root: Path, *flags: str) -> Stage:
    from engines.thinker import command, environment

    channel = f"ipc://{root}/{role.value}.rows"
    spec = replace(spec_of(model, role, DEFAULT), channel=channel, extra=(*ONLY_SOUND, *flags))
    argv, env = command(spec, device="cpu"), environment(spec, device="cpu")
    return Stage(_started(stack, role.value, spec.port, argv, env, root, role), channel)


def talker(stack: ExitStack, model: Path, root: Path, *flags: str, **env: str) -> Stage:
    from engines.talker.launch import command, environment

    channel = f"ipc://{root}/codes"
    spec = replace(spec_of(model, Role.BOTH, None), channel=channel, extra=flags)
    argv, added = command(spec, device="cpu"), environment(spec, device="cpu")
    return Stage(_started(stack, "talker", spec.port, argv, {**added, **env}, root), channel)


def code2wav(stack: ExitStack, model: Path, root: Path) -> RealEngine:
    from engines.code2wav.launch import Code2WavSpec, command, environment

    spec = Code2WavSpec(str(model), *free_ports(1), served_name="tiny", device="cpu")
    argv, env = command(spec, device="cpu"), environment(spec, device="cpu")
    return _started(stack, "code2wav", spec.port, argv, env, root)


def _started(
    stack: ExitStack,
    name: str,
    port: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    root: Path,
    role: Role = Role.BOTH,
) -> RealEngine:
    child = stack.enter_context(Child(name, argv, log=root / f"{name}.log", env=env))
    url = f"http://127.0.0.1:{port}"
    return RealEngine(role, url, url, child)
