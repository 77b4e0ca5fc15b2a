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

RESERVED = frozenset({*KEYS, "request_id", "mtp_inputs"})
"""The runner's own: a model's update does not change them."""


def merge(info: dict[str, Any], updates: Mapping[str, Any], on_device: frozenset[NestedKey]) -> None:
    """Merges `updates` into `info`. Tensors are copied: a hook may return views of buffers that are reused."""
    for key, value in updates.items():
        if key in RESERVED:
            continue
        if isinstance(value, Mapping):
            nested = info.setdefault(key, {})
            for name, inner in value.items():
                nested[name] = owned(inner, stays=(key, name) in on_device)
        else:
            info[key] = owned(value, stays=False)


def owned(value: Any, *, stays: bool) -> Any:
    """`value` with copies for its tensors, in host memory unless one `stays` on its device."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        return tensor.clone() if stays or tensor.device.type == "cpu" else tensor.to("cpu")
    if isinstance(value, list):
        return [owned(item, stays=stays) for item in value]
    return value
