"""An engine's end of the stage channel: one publisher a process, and tensors as rows.

| environment | meaning |
| --- | --- |
| `DUET_CHANNEL` | `ipc:///path` or `tcp://host:port`: where this engine's rows are pulled from |
| `DUET_CHANNEL_BIND` | what to bind instead, say `tcp://0.0.0.0:7100`, where the first is an outer address |

Whoever starts an engine sets them, so the engine's server and its workers agree on them without a word.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from common.channel import ChannelError, Publisher, Reference, Rows
from common.channel.claim import Claim, lock_of, path_of
from common.channel.reference import Key
from common.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

ENDPOINT = "DUET_CHANNEL"
BIND = "DUET_CHANNEL_BIND"
DYING_FOR = 5.0
"""Seconds that a process which was killed may take to let go of what it has: its memory goes first."""


def endpoint() -> str:
    """Raises ConfigurationError if there is none."""
    found = os.environ.get(ENDPOINT)
    if not found:
        raise ConfigurationError(f"{ENDPOINT} is not set: expected ipc:///path or tcp://host:port, to publish rows at")
    return found


def reference(request: str, stage: str) -> Reference:
    """To a stream of this engine."""
    return Reference(endpoint(), Key(request, stage))


@cache
def publisher() -> Publisher:
    """This process's. Raises ConfigurationError, and ChannelError if the endpoint is taken."""
    return Publisher(endpoint(), bind=os.environ.get(BIND))


def remove_socket(within: float = DYING_FOR) -> None:
    """Removes what a publisher left at an `ipc` endpoint, for whoever outlives it: vLLM kills its workers at its end,
    and one that is killed leaves its socket. Waits so many seconds for one that is still dying; what a publisher has
    that lives on is let be."""
    path = path_of(os.environ.get(BIND) or os.environ.get(ENDPOINT, ""))
    until = time.monotonic() + within
    while path is not None and (path.is_socket() or lock_of(path).exists()):
        with suppress(ChannelError):
            Claim(path).release()
            return
        if time.monotonic() >= until:
            return
        time.sleep(0.05)


def to_rows(tensor: Tensor) -> Rows:
    """A copy in host memory, of any shape. On a GPU this waits for what computes it."""
    import torch

    held = tensor.detach().to("cpu", copy=True).contiguous()
    name = str(held.dtype).removeprefix("torch.")
    data = held.reshape(-1).view(torch.uint8).numpy().data if held.numel() else b""
    return Rows.of(name, tuple(held.shape), data)


def to_tensor(rows: Rows) -> Tensor:
    """A copy, in host memory."""
    import torch

    dtype = getattr(torch, rows.dtype)
    if not rows.data.nbytes:
        return torch.empty(rows.shape, dtype=dtype)
    return torch.frombuffer(bytearray(rows.data), dtype=dtype).reshape(rows.shape)


def leads() -> bool:
    """Whether this worker is the one of its tensor-parallel group that publishes."""
    from vllm.distributed import parallel_state

    return bool(parallel_state.get_tensor_model_parallel_rank() == 0)
