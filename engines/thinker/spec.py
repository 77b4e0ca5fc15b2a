"""What an engine should be, in words that are not vLLM's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from common.connectors import DEFAULT
from common.engine import Role

Device = Literal["auto", "cpu", "cuda"]
Runner = Literal["duet", "stock"]


class OnDevice(Protocol):
    @property
    def device(self) -> str: ...


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One vLLM engine. Lengths are tokens, `lease` is seconds, `kv_blocks` blocks of `block_size` tokens.

    `connector` None makes an engine that is not part of a split. `dtype` "auto" is the model's own on a GPU and
    float32 on CPUs, where 16 bits are no faster and answers depend on what else is in a batch.
    """

    model: str
    role: Role
    port: int
    host: str = "127.0.0.1"
    served_name: str | None = None
    connector: str | None = DEFAULT
    lease: float | None = None
    side_port: int | None = None
    """A port of its own for the connector, where it needs one."""
    runner: Runner = "duet"
    """Whether models are told which rows are prompt (`engines/runner`), or stock vLLM runs as it is."""
    device: Device = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    kv_blocks: int | None = None
    seed: int = 0
    registry: str | None = None
    """URL of the Redis in which it announces itself; None for nowhere."""
    advertise: str | None = None
    """Base URL at which gateways reach it; its host and port if None."""
    log_requests: bool = False
    """One line in the log for each request that the engine takes."""
    api_key: str | None = None
    channel: str | None = None
    """`ipc:///path` or `tcp://host:port`, where others pull what it publishes. A Thinker that has one tells a Talker
    what it computes; one without publishes nothing."""
    extra: tuple[str, ...] = ()
    """Further vLLM arguments; they come last, so they win."""
