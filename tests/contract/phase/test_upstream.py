"""The same rows through vLLM-Omni's runner and through ours: one model, told the same, says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.phase.cases import CASES, told
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import Talker

pytestmark = pytest.mark.timeout(300)  # vLLM-Omni is imported, in a process of its own

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def upstream() -> Any:
    """What vLLM-Omni's runner did, by hook and case."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.contract.phase.upstream"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    if "missing" in found:
        pytest.skip(f"vLLM-Omni cannot be imported here: {found['missing']}")
    return found["told"]


EACH = pytest.mark.parametrize(
    "index", range(len(CASES)), ids=lambda k: "+".join("/".join(map(str, r)) for r in CASES[k])
)
HOOKS = pytest.mark.parametrize("batched", [False, True], ids=["scalar", "batched"])


def ours(index: int, batched: bool) -> dict[str, Any]:
    with torch.inference_mode():
        found = told(Stage(model=Talker(batched=batched)), CASES[index])
    assert bool(found["mtp"]) == any(span == 1 and computed >= prompt for prompt, computed, span in CASES[index])
    return found


@HOOKS
@EACH
def test_ours_takes_every_case(index: int, batched: bool) -> None:
    """Also where there is nothing to compare it with."""
    phases = {call[1]: call[4] for call in ours(index, batched)["calls"]}
    assert phases == {f"r{i}": computed < prompt for i, (prompt, computed, _) in enumerate(CASES[index])}


@pytest.mark.optional
@HOOKS
@EACH
def test_both_runners_tell_a_model_the_same(upstream: Any, index: int, batched: bool) -> None:
    assert json.loads(json.dumps(ours(index, batched))) == upstream[batched][index]
