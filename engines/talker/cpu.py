"""`--worker-cls engines.talker.cpu.TalkerCPUWorker`: the phase-aware worker for CPUs; its engine publishes codes."""

from __future__ import annotations

from engines.runner.cpu import PhaseCPUWorker


class TalkerCPUWorker(PhaseCPUWorker):
    publishes = "talker"
