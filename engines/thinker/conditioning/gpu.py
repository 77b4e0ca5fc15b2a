"""`--worker-cls engines.thinker.conditioning.gpu.ThinkerGPUWorker`: the phase-aware worker, with conditioning."""

from __future__ import annotations

from engines.runner.gpu import PhaseGPURunner, PhaseGPUWorker
from engines.thinker.conditioning.mixin import ConditioningMixin


class ThinkerGPURunner(ConditioningMixin, PhaseGPURunner):
    """The phase-aware runner for GPUs, with conditioning."""


class ThinkerGPUWorker(PhaseGPUWorker):
    runner = ThinkerGPURunner
    publishes = "thinker"
