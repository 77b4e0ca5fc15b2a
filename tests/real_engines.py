"""Three real vLLM engines with the tiny model, once for the whole run: prefill, decode, and an unsplit one beside them.

float32, so that answers can be compared token by token: in 16 bits they depend on what else is in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from common.engine import Role
from common.ports import free_ports
from common.process import Child
from engines.tiny import make_text

MAX_LEN = 2048
LEASE = 30.0
READY_WITHIN = 420.0
"""Seconds. Three engines start in half a minute on two quiet cores, and in several on busy ones."""


@dataclass(frozen=True)
class RealEngine:
    role: Role
    url: str
    child: Child

    def log(self) -> str:
        return self.child.log.read_text(errors="replace")


@dataclass(frozen=True)
class RealEngines:
    model: str
    prefill: RealEngine
    decode: RealEngine
    unsplit: RealEngine


@pytest.fixture(scope="session")
def real_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngines]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    logs = tmp_path_factory.mktemp("engines")
    model = make_text(logs / "tiny")
    with ExitStack() as stack:
        engines = start(stack, logs, model)
        yield RealEngines("tiny", *engines)
        for engine in engines:  # all at once, then each waits for its end
            engine.child.ask_to_stop()


def start(stack: ExitStack, logs: Path, model: Path) -> list[RealEngine]:
    from engines.thinker import EngineSpec, command, environment
    from engines.thinker.launch import device_of
    from engines.thinker.ready import Readiness

    ports = free_ports(5)
    specs = {
        "prefill": EngineSpec(str(model), Role.PREFILL, ports[0], side_port=ports[3], lease=LEASE),
        "decode": EngineSpec(str(model), Role.DECODE, ports[1], side_port=ports[4], lease=LEASE),
        "unsplit": EngineSpec(str(model), Role.BOTH, ports[2], connector=None),
    }
    found = []
    for name, spec in specs.items():
        shared = {"served_name": "tiny", "max_model_len": MAX_LEN, "log_requests": True, "dtype": "float32"}
        spec = replace(spec, **shared)
        device = device_of(spec)
        child = Child(
            name, command(spec, device=device), log=logs / f"{name}.log", env=environment(spec, device=device)
        )
        found.append(RealEngine(spec.role, f"http://127.0.0.1:{spec.port}", stack.enter_context(child)))
    for engine in found:
        Readiness(engine.child, engine.url, within=READY_WITHIN).wait()
    return found
