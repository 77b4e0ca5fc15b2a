"""`--worker-cls engines.talker.cpu.TalkerCPUWorker`: the phase-aware worker for CPUs, whose requests may have seeds."""

from __future__ import annotations

from engines.runner.cpu import PhaseCPURunner, PhaseCPUWorker
from engines.seeded import SeededDraws


class TalkerCPURunner(SeededDraws, PhaseCPURunner):
    """The phase-aware runner for CPUs, with seeds that survive chunks."""


class TalkerCPUWorker(PhaseCPUWorker):
    runner = TalkerCPURunner
