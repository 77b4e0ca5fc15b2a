"""`--worker-cls engines.thinker.conditioning.cpu.ThinkerCPUWorker`: the same on CPUs."""

from __future__ import annotations

import engines.runner.cpu as phase
from engines.seeded import SeededDraws
from engines.thinker.conditioning.mixin import ConditioningMixin


class ThinkerCPURunner(ConditioningMixin, SeededDraws, phase.PhaseCPURunner):
    """The phase-aware runner for CPUs, with conditioning."""


class ThinkerCPUWorker(phase.PhaseCPUWorker):
    def init_device(self) -> None:
        """The phase-aware worker names its runner's class in its `init_device`: swapped for the time of that call."""
        named, phase.PhaseCPURunner = phase.PhaseCPURunner, ThinkerCPURunner
        try:
            super().init_device()
        finally:
            phase.PhaseCPURunner = named
