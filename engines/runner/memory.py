"""What a model wants remembered of a request between steps.

vLLM-Omni calls it the intermediate buffer: a plain dict for each request, in which hooks' updates are merged one level
deep. It lives as long as the request does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from common.phase import KEYS
from engines.runner.hooks import NestedKey
from engines.runner.rows import Row

Memory = dict[str, Any]

EXTRA_ARGS = "sampling_extra_args"
"""dict: what the client sent as `vllm_xargs`."""
MAX_TOKENS = "_omni_max_tokens"
"""int | None: how many tokens may be sampled."""
SAMPLING_SEED = "_omni_seed"
"""int | None: the seed of vLLM's own sampling."""
OFFSET, OFFSET_PROMPT = "duplex_token_offset", "duplex_prompt_len"
"""Older names of vLLM-Omni's for tokens computed and prompt length."""

PHASED = frozenset({*KEYS, OFFSET, OFFSET_PROMPT})
"""Worked out for each row; before the rows nobody knows them."""
RESERVED = PHASED | {"request_id", "mtp_inputs", EXTRA_ARGS, MAX_TOKENS, SAMPLING_SEED}
"""The runner's own: a model's update does not change them."""


def tell(info: Memory, row: Row) -> None:
    """Puts into `info` what is the row's alone, and true of no other: its phase and its request."""
    info.update(row.phase.keys())
    info["request_id"] = row.request
    info[OFFSET], info[OFFSET_PROMPT] = row.phase.num_computed, row.phase.prompt_len


def merge(memory: Memory, updates: Mapping[str, Any], on_device: frozenset[NestedKey]) -> None:
    """Merges `updates` into `memory`. Tensors are copied: a hook may return views of buffers that are reused.

    Raises ValueError for a mapping under a key that holds something else.
    """
    for key, value in updates.items():
        if key in RESERVED:
            continue
        if isinstance(value, Tensor) or not isinstance(value, Mapping):
            memory[key] = owned(value, False)
        else:
            nested = nested_in(memory, key)
            for name, inner in value.items():
                nested[name] = owned(inner, (key, name) in on_device)


def nested_in(memory: Memory, key: str) -> dict[str, Any]:
    """The dict that `memory` holds under `key`, made if there is none. Raises ValueError if there is another thing."""
    nested: Any = memory.get(key)
    if type(nested) is dict:
        return nested
    if key not in memory:
        nested = memory[key] = {}
    if not isinstance(nested, dict):
        raise ValueError(f"{key!r} is remembered as {type(nested).__name__}; expected a dict, to merge into")
    return nested


def copied(memory: Memory) -> Memory:
    """A copy as deep as updates are merged: what is merged later does not reach it."""
    copy = memory.copy()
    for key, value in memory.items():
        if isinstance(value, dict):
            copy[key] = value.copy()
    return copy


def owned(value: Any, stays: bool) -> Any:
    """`value` with copies for its tensors, in host memory unless one `stays` on its device."""
    if isinstance(value, Tensor):
        tensor = value.detach() if value.requires_grad else value
        return tensor.clone() if stays or tensor.is_cpu else tensor.to("cpu")
    if isinstance(value, list):
        return [owned(item, stays) for item in value]
    return value
