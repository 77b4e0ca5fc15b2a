"""`--worker-cls engines.runner.gpu.PhaseGPUWorker`: stock vLLM's worker with our runner in it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

from vllm.forward_context import set_forward_context
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from common.phase import CONTRACT_VERSION
from engines.runner.lastwords import last_words
from engines.runner.mixin import PhaseRunnerMixin
from engines.runner.runtime import check_class, check_worker

with last_words():
    check_class(GPUModelRunner)


class PhaseV1Runner(PhaseRunnerMixin):
    """What the runners for all devices have in common."""

    def mtp_context(self) -> AbstractContextManager[Any]:
        """vLLM's layers look for a forward context, and MTP may be made of them."""
        return set_forward_context(None, self.vllm_config)


class PhaseGPURunner(PhaseV1Runner, GPUModelRunner):
    """Stock V1 runner with the phase contract."""


class PhaseWorker(Worker):
    """What the workers for all devices have in common: no Model Runner V2, and a word left of why they end."""

    phase_contract: ClassVar[str] = CONTRACT_VERSION
    """For `require_phase_contract`, which knows no worker by its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        with last_words():
            check_worker(self)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        with last_words():
            super().load_model(*args, **kwargs)

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        with last_words():
            return super().execute_model(*args, **kwargs)


class PhaseGPUWorker(PhaseWorker):
    runner: ClassVar[type[PhaseGPURunner]] = PhaseGPURunner
    """What it runs models with: a subclass names its own here."""

    def _make_model_runner(self) -> PhaseGPURunner:
        with last_words():
            return self.runner(self.vllm_config, self.device)
