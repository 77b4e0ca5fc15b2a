"""A vLLM general plugin: vLLM calls `register` in the API server, the engine core and each worker, before connectors
are imported. It may be called more than once in a process.

| environment | meaning |
| --- | --- |
| `DUET_YIELD_US` | microseconds to sleep instead of `sched_yield`; 0 keeps `sched_yield`; 50 by default, 0 with a GPU |
| `DUET_NIXL_PROGRESS_THREAD` | 1 leaves NIXL's progress thread on; off by default, on with a GPU |
"""

from __future__ import annotations

import math
import os
import time

from common.errors import ConfigurationError
from engines.compat.nixl import serve_nixl
from engines.compat.sound import refuse_broken_sound, resample_without_torchaudio

YIELD_US = "50"


def register() -> None:
    """Raises ConfigurationError for a variable that cannot be read: the engine then does not start."""
    if _on_cpu():
        sleep_instead_of_yield(_microseconds(os.environ.get("DUET_YIELD_US", YIELD_US)))
        serve_nixl(progress_thread=os.environ.get("DUET_NIXL_PROGRESS_THREAD") == "1")
        answer_for_the_device()
        resample_without_torchaudio()
        refuse_broken_sound()


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _microseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigurationError(f"DUET_YIELD_US {text!r}: expected microseconds, 0 or more")
    return value


def sleep_instead_of_yield(microseconds: float) -> None:
    """A waiting worker then leaves its core to others: a spinning one is starved for seconds by newer schedulers."""
    if microseconds > 0 and hasattr(os, "sched_yield"):
        seconds = microseconds * 1e-6
        os.sched_yield = lambda: time.sleep(seconds)


def answer_for_the_device() -> None:
    """Mooncake's worker asks torch for the current accelerator's index and passes it on; on CPUs torch has none and
    raises. The index is used for nothing there."""
    import torch

    torch.accelerator.current_device_index = lambda: 0
