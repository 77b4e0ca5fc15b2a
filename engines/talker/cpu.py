"""`--worker-cls engines.talker.cpu.TalkerCPUWorker`: the phase-aware worker for CPUs, whose requests may have seeds."""

from __future__ import annotations

import engines.runner.cpu as phase
from engines.seeded import SeededDraws


class TalkerCPURunner(SeededDraws, phase.PhaseCPURunner):
    """The phase-aware runner for CPUs, with seeds that survive chunks."""


class TalkerCPUWorker(phase.PhaseCPUWorker):
    def init_device(self) -> None:
        """The phase-aware worker names its runner's class in its `init_device`: swapped for the time of that call."""
        named, phase.PhaseCPURunner = phase.PhaseCPURunner, TalkerCPURunner
        try:
            super().init_device()
        finally:
            phase.PhaseCPURunner = named
