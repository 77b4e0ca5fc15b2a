"""`--worker-cls engines.runner.cpu.PhaseCPUWorker`: the same on CPUs.

A file of its own, because importing vLLM's CPU worker changes torch for the whole process. That worker names its
runner's class in the middle of `init_device`, so the name is swapped for the time of that call.
"""

from __future__ import annotations

from typing import ClassVar

import vllm.v1.worker.cpu_worker as stock

from engines.runner.gpu import PhaseV1Runner, PhaseWorker
from engines.runner.lastwords import last_words
from engines.runner.seeded import SeededDraws


class PhaseCPURunner(PhaseV1Runner, SeededDraws, stock.CPUModelRunner):
    """Stock V1 runner for CPUs with the phase contract, and with seeds that survive a prompt in chunks."""


class PhaseCPUWorker(PhaseWorker, stock.CPUWorker):
    runner: ClassVar[type[PhaseCPURunner]] = PhaseCPURunner
    """What it runs models with: a subclass names its own here."""

    def init_device(self) -> None:
        named, stock.CPUModelRunner = stock.CPUModelRunner, self.runner
        try:
            with last_words():
                super().init_device()
        finally:
            stock.CPUModelRunner = named
