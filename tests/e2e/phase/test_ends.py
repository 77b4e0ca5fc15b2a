"""Real vLLM that is refused at its start, or ends because of a model: the reason is the last line that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from common.engine import Role
from tests.e2e.phase.witnesses import NAME, ask, prompt_of
from tests.real_engines import RealEngine, launch, spec_of, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

FULL = Path("/dev/full")
"""Nothing can be written there: the witness, told to bear witness in it, fails in its first hook."""
ENDED_WITHIN = 300.0
"""Seconds. A start is refused in some 20 on two quiet cores."""


@dataclass(frozen=True)
class Doomed:
    """`chosen_v2` ends by itself, `failing` with its first request."""

    chosen_v2: RealEngine
    failing: RealEngine


@pytest.fixture(scope="module")
def doomed(tmp_path_factory: pytest.TempPathFactory, witness_model: Path) -> Iterator[Doomed]:
    logs = tmp_path_factory.mktemp("doomed")
    told = json.dumps({"witness": {"record": str(FULL)}})

    def start(stack: ExitStack, name: str, *flags: str) -> RealEngine:
        spec = replace(spec_of(witness_model, Role.BOTH, None), served_name=NAME, extra=flags)
        return launch(stack, spec, logs / f"{name}.log")

    with ExitStack() as stack:
        yield Doomed(
            chosen_v2=start(stack, "v2", "--worker-cls", "tests.e2e.phase.chosen_v2.ChosenV2"),
            failing=start(stack, "failing", "--additional-config", told),
        )


def test_model_runner_v2_is_refused(doomed: Doomed) -> None:
    assert last_line(doomed.chosen_v2) == (
        "engines.runner.errors.RuntimeUnsupported: vLLM chose Model Runner V2, the phase contract needs V1: set "
        "VLLM_USE_V2_MODEL_RUNNER=0, or run the stock worker (duet engine thinker --runner stock) for a model without "
        "hooks"
    )


async def test_a_hook_that_fails_ends_the_engine_with_the_request_named(doomed: Doomed) -> None:
    engine = doomed.failing
    wait_for(engine)
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        reply = await client.post("/v1/completions", json=ask([prompt_of(5)], 4), headers={"X-Request-Id": "the-last"})
    assert reply.status_code == 500, reply.text
    said = last_line(engine)
    assert said.startswith("engines.runner.errors.HookFailed: model WitnessForCausalLM, request cmpl-the-last-0-"), said
    assert said.endswith("(row 0): preprocess raised OSError: [Errno 28] No space left on device"), said


def last_line(engine: RealEngine) -> str:
    """Waits for its end, which is one with status 1."""
    assert engine.child.wait(ENDED_WITHIN) == 1, engine.child.tail()
    return engine.log().rstrip("\n").rpartition("\n")[2]
