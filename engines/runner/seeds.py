"""Seeds that requests bring for MTP: what is one, and the generators that they make."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SEED = "tts_local_seed"
"""A request's own seed for MTP, among its sampling parameters' extra arguments (`vllm_xargs`)."""
DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
LOWEST, HIGHEST = -(2**63), 2**64 - 1
"""What torch takes."""


def seed_of(extra_args: Mapping[str, Any] | None) -> int | None:
    """The seed that a request brought, None for none. As in vLLM-Omni a decimal string is one too.

    Raises ValueError for anything that is no whole number of 64 bits.
    """
    found = (extra_args or {}).get(SEED)
    if found is None:
        return None
    seed = _whole(found)
    if seed is None or not LOWEST <= seed <= HIGHEST:
        raise ValueError(f"{SEED} is {_shown(found)}; expected a whole number from -2**63 to 2**64 - 1")
    return seed


def _whole(found: Any) -> int | None:
    match found:
        case bool():
            return None
        case int():
            return found
        case float() if found.is_integer():
            return int(found)
        case str():
            return int(found) if DECIMAL.fullmatch(found) else None
    return None


def _shown(found: Any) -> str:
    """For an error message: short, and in characters that every encoding has."""
    return reprlib.repr(found).encode("ascii", "backslashreplace").decode()


class Generators:
    """One for each request that brought a seed, from its first MTP to its end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._found: dict[str, torch.Generator] = {}

    def of(self, request: str, extra_args: Mapping[str, Any]) -> torch.Generator | None:
        """None for a request without a seed. Raises ValueError as `seed_of` does."""
        seed = seed_of(extra_args)
        if seed is None:
            return None
        found = self._found.get(request)
        if found is None:
            found = self._found[request] = torch.Generator(device=self._device)
            found.manual_seed(seed)
        return found

    def state(self, request: str) -> Tensor | None:
        """Where the request's generator is; None if it has none yet."""
        found = self._found.get(request)
        return None if found is None else found.get_state()

    def restore(self, request: str, state: Tensor | None) -> None:
        """Puts it back there. None: it had drawn nothing, and starts anew from its seed."""
        if state is None:
            self.forget(request)
        else:
            self._found[request].set_state(state)

    def forget(self, request: str) -> None:
        self._found.pop(request, None)
