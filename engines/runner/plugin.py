"""A vLLM general plugin: vLLM calls `register` in the API server, the engine core and each worker.

A model class with `requires_phase_contract = True` is then refused on a worker that tells it no phase. It need not
import anything of ours for that, so it stays a plain vLLM-Omni model elsewhere. And each process ends with the one that
started it. Everything else is up to `--worker-cls`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from engines.runner.admission import check_seeds
from engines.runner.errors import RuntimeUnsupported
from engines.runner.parent import end_with_parent
from engines.runner.runtime import require_phase_contract

DECLARED = "requires_phase_contract"
LOADERS = "vllm.model_executor.model_loader"
MAKER = "initialize_model"
"""Every loader makes its model with this function of `LOADERS.utils`, and each holds it under this name."""
_WRAPPED = "_duet_asks_for_phases"


def register() -> None:
    """May be called more than once in a process. Raises RuntimeUnsupported for a vLLM that makes models otherwise."""
    import vllm.model_executor.model_loader as loaders
    from vllm.model_executor.model_loader import utils

    end_with_parent()
    check_seeds()
    stock = getattr(utils, MAKER, None)
    if stock is None:
        raise RuntimeUnsupported(
            f"{loaders.__name__}.utils has no {MAKER}, through which models are asked for {DECLARED}: "
            "leave duet_runner out of VLLM_PLUGINS on this vLLM"
        )
    if hasattr(stock, _WRAPPED):
        return
    asking = _asking(stock)
    for module in _holders(stock):
        setattr(module, MAKER, asking)


def _asking(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def initialize_model(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        from vllm.model_executor.model_loader.utils import get_model_architecture

        model = kwargs.get("model_class")
        if model is None:
            model, _ = get_model_architecture(kwargs.get("model_config") or vllm_config.model_config)
        if getattr(model, DECLARED, False):
            require_phase_contract(vllm_config)
        return stock(vllm_config, *args, **kwargs)

    setattr(initialize_model, _WRAPPED, True)
    return initialize_model


def _holders(stock: Callable[..., Any]) -> list[ModuleType]:
    loaded = [module for name, module in list(sys.modules.items()) if name.startswith(LOADERS)]
    return [module for module in loaded if getattr(module, MAKER, None) is stock]
