"""Prefill, decode and Talker on real vLLM with the tiny Qwen3-Omni, and transformers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from common.channel.reference import Key, Reference
from common.connectors import DEFAULT
from common.engine import Role
from common.process import Child
from engines.tiny import make_omni
from tests.contract.talker.oracle import Case, Oracle, cases
from tests.real_engines import RealEngine, spec_of, wait_for

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
    prefill: Stage
    decode: Stage
    talker: Stage
    oracle: list[Case]


@pytest.fixture(scope="package")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    from engines.talker import make_talker

    root = tmp_path_factory.mktemp("speech")
    omni = make_omni(root / "omni")
    talker = make_talker(omni, root / "talker")
    with ExitStack() as stack:
        prefill = _thinker(stack, omni, Role.PREFILL, root)
        decode = _thinker(stack, omni, Role.DECODE, root)
        found = Stages(prefill, decode, _talker(stack, talker, root), cases(Oracle(omni)))
        engines = [stage.engine for stage in (prefill, decode, found.talker)]
        wait_for(*engines)
        yield found
        for engine in engines:
            engine.child.ask_to_stop()


def _thinker(stack: ExitStack, model: Path, role: Role, root: Path) -> Stage:
    from engines.thinker.conditioning.launch import command, environment

    spec = replace(spec_of(model, role, DEFAULT), extra=ONLY_SOUND)
    channel = f"ipc://{root}/{role.value}.rows"
    env = environment(spec, device="cpu", channel=channel)
    child = Child(role.value, command(spec, device="cpu"), log=root / f"{role.value}.log", env=env)
    return Stage(RealEngine(role, f"http://127.0.0.1:{spec.port}", "", stack.enter_context(child)), channel)


def _talker(stack: ExitStack, model: Path, root: Path) -> Stage:
    from engines.talker.launch import command, environment

    spec = spec_of(model, Role.BOTH, None)
    channel = f"ipc://{root}/codes"
    env = environment(spec, device="cpu", channel=channel)
    child = Child("talker", command(spec, device="cpu"), log=root / "talker.log", env=env)
    return Stage(RealEngine(Role.BOTH, f"http://127.0.0.1:{spec.port}", "", stack.enter_context(child)), channel)
