"""A vLLM general plugin: vLLM calls `register` in the API server, the engine core and each worker, before connectors
are imported. It may be called more than once in a process.

| environment | meaning |
| --- | --- |
| `DUET_YIELD_US` | microseconds to sleep instead of `sched_yield`; 0 keeps `sched_yield`; 50 by default, 0 with a GPU |
| `DUET_NIXL_PROGRESS_THREAD` | 1 leaves NIXL's progress thread on; off by default, on with a GPU |
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import time
from importlib.util import find_spec
from types import ModuleType
from typing import Any

YIELD_US = 50.0


def register() -> None:
    if _on_cpu():
        sleep_instead_of_yield(float(os.environ.get("DUET_YIELD_US", YIELD_US)))
        serve_nixl(progress_thread=os.environ.get("DUET_NIXL_PROGRESS_THREAD") == "1")


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def sleep_instead_of_yield(microseconds: float) -> None:
    """A waiting worker then leaves its core to others: a spinning one is starved for seconds by newer schedulers."""
    if microseconds > 0 and hasattr(os, "sched_yield"):
        seconds = microseconds * 1e-6
        os.sched_yield = lambda: time.sleep(seconds)


def serve_nixl(*, progress_thread: bool) -> None:
    """Puts `nixl`, `nixl._api` and `nixl._bindings` in place from `nixl_cu12`, if that is what is installed."""
    if "nixl" in sys.modules or find_spec("nixl") is not None or find_spec("nixl_cu12") is None:
        return
    api, bindings = (importlib.import_module(f"nixl_cu12.{name}") for name in ("_api", "_bindings"))
    served = ModuleType("nixl._api")
    served.__dict__.update({k: v for k, v in vars(api).items() if not k.startswith("__")})
    served.nixl_agent_config = _config_class(api.nixl_agent_config, progress_thread)  # type: ignore[attr-defined]
    package = ModuleType("nixl")
    package.__path__ = []
    package.__spec__ = importlib.machinery.ModuleSpec("nixl", loader=None, is_package=True)
    package._api = served  # type: ignore[attr-defined]
    package._bindings = bindings  # type: ignore[attr-defined]
    sys.modules.update({"nixl": package, "nixl._api": served, "nixl._bindings": bindings})


def _config_class(base: Any, progress_thread: bool) -> Any:
    class AgentConfig(base):  # type: ignore[misc]
        """NIXL's agent configuration; the progress thread is as set here unless a caller sets it itself."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.setdefault("enable_prog_thread", progress_thread)
            super().__init__(*args, **kwargs)

    return AgentConfig
