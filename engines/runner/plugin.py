"""A vLLM general plugin: vLLM calls `register` in the API server, the engine core and each worker.

A model class with `requires_phase_contract = True` is then refused on a worker that tells it no phase. It need not
import anything of ours for that, so it stays a plain vLLM-Omni model elsewhere. Everything else is up to
`--worker-cls`.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from engines.runner.runtime import require_phase_contract

DECLARED = "requires_phase_contract"
_WRAPPED = "_duet_asks_for_phases"


def register() -> None:
    """May be called more than once in a process."""
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    stock = BaseModelLoader.create_model
    if hasattr(stock, _WRAPPED):
        return

    @wraps(stock)
    def create_model(self: Any, vllm_config: Any, model_config: Any, *args: Any, **kwargs: Any) -> Any:
        from vllm.model_executor.model_loader.utils import get_model_architecture

        if getattr(get_model_architecture(model_config)[0], DECLARED, False):
            require_phase_contract(vllm_config)
        return stock(self, vllm_config, model_config, *args, **kwargs)

    setattr(create_model, _WRAPPED, True)
    BaseModelLoader.create_model = create_model
