"""`--worker-cls engines.runner.gpu.PhaseGPUWorker`: stock vLLM's worker with our runner in it."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from engines.runner.lastwords import last_words
from engines.runner.mixin import PhaseRunnerMixin
from engines.runner.runtime import check_class, check_worker

with last_words():
    check_class(GPUModelRunner)


class PhaseGPURunner(PhaseRunnerMixin, GPUModelRunner):
    """Stock V1 runner with the phase contract."""


class PhaseWorker(Worker):
    """What the workers for all devices have in common: no Model Runner V2, and a word left of why they end."""

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
