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


@pytest.mark.optional
@pytest.mark.parametrize("batched", [False, True], ids=["scalar", "batched"])
@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda k: "+".join("/".join(map(str, r)) for r in CASES[k]))
def test_both_runners_tell_a_model_the_same(upstream: Any, index: int, batched: bool) -> None:
    with torch.inference_mode():
        ours = told(Stage(model=Talker(batched=batched)), CASES[index])
    assert json.loads(json.dumps(ours)) == upstream[batched][index]
    assert bool(ours["mtp"]) == any(span == 1 and computed >= prompt for prompt, computed, span in CASES[index])
