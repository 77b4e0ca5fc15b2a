"""The runner's tests run on a stand-in for vLLM's runner, and on vLLM's own where it is installed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runner.stage import FakeRunner, Stage

STAND_IN_ONLY = "DUET_TEST_STAND_IN_ONLY"
"""Set by the mutation script: importing vLLM for each mutation would take minutes."""


@pytest.fixture(params=["stand-in", "vllm"])
def runner_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    if request.param == "stand-in":
        return FakeRunner
    if os.environ.get(STAND_IN_ONLY) or find_spec("vllm") is None:
        pytest.skip("on vLLM's own runner: vLLM is not installed, or was not wanted")
    with warnings.catch_warnings(action="ignore"):  # torch's own, about itself
        from vllm.v1.worker import gpu_model_runner

    from engines.runner.mixin import PhaseRunnerMixin

    monkeypatch.setattr(gpu_model_runner, "get_pp_group", lambda: SimpleNamespace(is_first_rank=True))
    return type("VllmRunner", (PhaseRunnerMixin, gpu_model_runner.GPUModelRunner), {})


@pytest.fixture
def stage(runner_class: type) -> Callable[..., Stage]:
    """Makes stages on that runner."""

    def make(model: Any = None, **options: Any) -> Stage:
        return Stage(runner_class, model, **options)

    return make
