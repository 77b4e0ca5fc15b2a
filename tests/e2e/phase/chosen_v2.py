"""Our worker in a vLLM that has chosen Model Runner V2. Without Triton, so on CPUs, vLLM 0.32 never does by itself."""

from __future__ import annotations

from engines.runner.cpu import PhaseCPUWorker


class ChosenV2(PhaseCPUWorker):
    @property
    def use_v2_model_runner(self) -> bool:
        return True

    @use_v2_model_runner.setter
    def use_v2_model_runner(self, chosen: bool) -> None:
        """vLLM's worker writes down its choice."""
