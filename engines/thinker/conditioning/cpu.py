"""`--worker-cls engines.thinker.conditioning.cpu.ThinkerCPUWorker`: the same on CPUs."""

from __future__ import annotations

from engines.runner.cpu import PhaseCPURunner, PhaseCPUWorker
from engines.thinker.conditioning.mixin import ConditioningMixin


class ThinkerCPURunner(ConditioningMixin, PhaseCPURunner):
    """The phase-aware runner for CPUs, with conditioning."""


class ThinkerCPUWorker(PhaseCPUWorker):
    runner = ThinkerCPURunner
    publishes = "thinker"
