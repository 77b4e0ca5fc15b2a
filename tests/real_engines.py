"""Three real vLLM engines with the tiny model, once for the whole run: prefill, decode, and an unsplit one beside them.

float32, so that answers can be compared token by token: in 16 bits they depend on what else is in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest

from common.connectors import DEFAULT, connector
from common.engine import Role
from common.process import Child
from engines.tiny import make_text
from tests.ports import own_ports

if TYPE_CHECKING:
    from engines.thinker import EngineSpec

MAX_LEN = 2048
LEASE = 30.0
READY_WITHIN = 420.0
"""Seconds. Three engines start in half a minute on two quiet cores, and in several on busy ones."""
GRACE = 60.0
"""Seconds that an engine may take to end by itself: one that its guards must kill has another status."""
MEETINGS = 5
"""How often two engines may try to meet."""
MET_WITHIN = 60.0
"""Seconds for each leg of a meeting. vLLM itself gives the other engine five to answer."""


@dataclass(frozen=True)
class RealEngine:
    """`told` is its URL with what a gateway must be told of it."""

    role: Role
    url: str
    told: str
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
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    return make_text(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def real_engines(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[RealEngines]:
    with ExitStack() as stack:
        logs = tmp_path_factory.mktemp("engines")
        unsplit = launch(stack, spec_of(tiny_model, Role.BOTH, None), logs / "unsplit.log")
        prefill, decode = launch_pair(stack, tiny_model, DEFAULT, logs)
        wait_for(unsplit, prefill, decode)
        meet(prefill, decode)
        yield RealEngines("tiny", prefill, decode, unsplit)
        for engine in (unsplit, prefill, decode):  # all at once, then each waits for its end
            engine.child.ask_to_stop()


def launch_pair(stack: ExitStack, model: Path, kv: str, logs: Path) -> tuple[RealEngine, RealEngine]:
    """A prefill and a decode engine with that connector, on their way up."""
    prefill, decode = (
        launch(stack, spec_of(model, role, kv), logs / f"{role.value}.log") for role in (Role.PREFILL, Role.DECODE)
    )
    return prefill, decode


def spec_of(model: Path, role: Role, kv: str | None) -> EngineSpec:
    from engines.thinker import EngineSpec

    port, side_port = own_ports(2)
    return EngineSpec(
        model=str(model),
        role=role,
        port=port,
        side_port=side_port,
        served_name="tiny",
        connector=kv,
        lease=LEASE,
        dtype="float32",
        max_model_len=MAX_LEN,
        log_requests=True,
    )


def launch(stack: ExitStack, spec: EngineSpec, log: Path, env: Mapping[str, str] | None = None) -> RealEngine:
    """An engine on its way up; `env` is added to what it needs."""
    from engines.thinker import command, environment
    from engines.thinker.launch import device_of

    device = device_of(spec)
    env = {**environment(spec, device=device), **(env or {})}
    child = Child(log.stem, command(spec, device=device), log=log, env=env, grace=GRACE)
    options = connector(spec.connector).url_options(side_port=spec.side_port or 0) if spec.connector else {}
    told = f"?{urlencode(options)}" if options and spec.role is Role.PREFILL else ""
    url = f"http://127.0.0.1:{spec.port}"
    return RealEngine(spec.role, url, f"{url}{told}", stack.enter_context(child))


def wait_for(*engines: RealEngine) -> None:
    from engines.thinker.ready import Readiness

    for engine in engines:
        Readiness(engine.child, engine.url, within=READY_WITHIN).wait()


def meet(prefill: RealEngine, decode: RealEngine, model: str = "tiny") -> None:
    """Has two engines with NIXL shake hands, by a prompt that is too short for a prefix cache: a test whose request is
    their first fails where one of them stands still meanwhile."""
    body = {"model": model, "prompt": [7, 8, 9], "max_tokens": 1, "min_tokens": 1, "ignore_eos": True}
    faults: list[str] = []
    with httpx.Client(timeout=MET_WITHIN) as client:

        def ask(engine: RealEngine, kv: dict[str, Any]) -> dict[str, Any]:
            name = {"x-request-id": f"meeting-{len(faults)}"}
            reply = client.post(f"{engine.url}/v1/completions", json={**body, "kv_transfer_params": kv}, headers=name)
            found: dict[str, Any] = reply.raise_for_status().json()
            return found

        while len(faults) < MEETINGS:
            try:
                prefilled = ask(prefill, {"do_remote_decode": True, "do_remote_prefill": False})
                ask(decode, prefilled["kv_transfer_params"])
            except httpx.HTTPError as e:
                faults.append(f"{type(e).__name__}: {e}")
            else:
                return
    raise AssertionError(f"{prefill.url} and {decode.url} did not meet: {faults}")
