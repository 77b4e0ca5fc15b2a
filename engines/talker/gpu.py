"""`--worker-cls engines.talker.gpu.TalkerGPUWorker`: the phase-aware worker, of an engine that publishes codes."""

from __future__ import annotations

from engines.runner.gpu import PhaseGPUWorker


class TalkerGPUWorker(PhaseGPUWorker):
    publishes = "talker"
