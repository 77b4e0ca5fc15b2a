"""The connector contract. Everything else in Duet talks to KV connectors through this file only.

    prefill_params(ctx) ──> prefill's kv_transfer_params
    handoff(ctx, reply) <── prefill's reply          (sequential; a concurrent connector is given `None`)
    decode_params(ctx, handoff) ──> decode's kv_transfer_params

A sequential connector needs prefill's reply before decode can be sent. A concurrent one makes its handoff from the
context alone, and both legs are sent at once. Callers look at `order` and at nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from common.engine import Engine, Role

Params = Mapping[str, Any]
"""A `kv_transfer_params` object as JSON values."""

NO_LENGTH = "prefill told neither usage.prompt_tokens nor prompt_token_ids, so nobody knows how long the prompt is"
"""Words of a HandoffInvalid."""


class Order(StrEnum):
    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"


class CancelPolicy(StrEnum):
    """What a client that leaves after prefill's reply and before decode's admission costs.

    `refused_decode`: a decode body that the engine refuses frees prefill's blocks at once.
    `lease`: nothing frees them but the end of the lease; they are accounted until then.
    """

    REFUSED_DECODE = "refused_decode"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class HandoffContext:
    """What a connector may know of one attempt of one request.

    `transfer_id` is unique for each attempt. `now` is the time in epoch seconds when the request was admitted.
    """

    transfer_id: str
    prefill: Engine
    decode: Engine
    now: float


@dataclass(frozen=True, slots=True)
class PrefillReply:
    """What a connector may read of prefill's reply.

    `params` is its `kv_transfer_params` (None where null or absent), `prompt_tokens` is how many the prompt has (None
    where the reply does not tell), `received_at` is when the reply was whole, in epoch seconds: the engine's lease
    began a network's delay before that, which the connector's margin must cover.
    """

    params: Params | None
    prompt_tokens: int | None
    received_at: float


@dataclass(frozen=True, slots=True)
class Handoff:
    """KV routing metadata, checked: safe to send to a decode engine until `expires_at` (epoch seconds).

    `params` are JSON values. `prompt_tokens` is how many tokens the KV covers, None if the connector cannot say.
    """

    connector: str
    params: Params
    prompt_tokens: int | None
    expires_at: float


@dataclass(frozen=True, slots=True)
class Lookup:
    """A GET: `base` is `http://host:port`, `path` begins with a slash."""

    base: str
    path: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What `check` compares about one side of a pair; None where it is not known."""

    engine: Engine
    connector: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Connector(ABC):
    """One KV connector. Pure: no I/O, no clock, no state."""

    name: str
    """vLLM's name of it, as in `kv_connector`."""
    aliases: tuple[str, ...] = ()
    """Further names that the command line takes."""
    order: Order
    cancel: CancelPolicy
    carries: bool = True
    """Whether a handoff says anything; a connector that finds KV by itself carries none."""
    one_request_id: bool = False
    """Whether both legs of an attempt must go by the same request id, since their engines know each other by it."""
    options: Mapping[str, str] = MappingProxyType({})
    """What an engine's URL may say in its query, and what that means."""

    def __init__(self, *, lease: float | None = None) -> None:
        """`lease` in seconds: how long prefill keeps KV that nobody fetched; the connector's default if None."""
        self.lease = self.default_lease if lease is None else lease

    @property
    @abstractmethod
    def default_lease(self) -> float:
        """Seconds; the engine's own default, with its source in the docstring."""

    @abstractmethod
    def prefill_params(self, ctx: HandoffContext) -> Params | None:
        """What prefill gets as `kv_transfer_params`; None to send none."""

    @abstractmethod
    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        """The checked handoff. `reply` is None exactly when `order` is concurrent.

        Raises HandoffInvalid, naming the field, the value seen and what was expected, for metadata that must not
        reach a decode engine. Whether null metadata is legal is the connector's to say.
        """

    @abstractmethod
    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params | None:
        """What decode gets as `kv_transfer_params`; None to send none."""

    def identity(self, handoff: Handoff) -> str | None:
        """What names the KV of a handoff, so that none is used twice; None if there is nothing to use up."""
        return json.dumps(handoff.params, sort_keys=True) if handoff.params else None

    def prefill_headers(self, ctx: HandoffContext) -> Mapping[str, str]:
        """Further headers of the prefill call, names lower case."""
        return {}

    def lookup(self, prefill: Engine) -> Lookup | None:
        """Where to ask what must be known of a prefill engine before a handoff can name it; None if nothing must.

        It is asked again with each health check, so an engine that comes back with another identity is known by it.
        """
        return None

    def learn(self, prefill: Engine, body: bytes) -> Mapping[str, str]:
        """The answer to `lookup` as `Engine.facts`. Raises EngineBroken for one that cannot be used."""
        return {}

    def url_options(self, *, side_port: int) -> Mapping[str, str]:
        """What a gateway must be told of a prefill engine in its URL's query, for an engine started with
        `engine_env(side_port=…)`. Names are among `options`."""
        return {}

    @abstractmethod
    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        """vLLM's `--kv-transfer-config` for an engine of this role on `device` (`cpu` or `cuda`)."""

    def engine_env(self, *, host: str, side_port: int) -> dict[str, str]:
        """Environment that an engine needs for this connector, given an address and a spare port of its own."""
        return {}

    def check(self, prefill: EngineFacts, decode: EngineFacts) -> Sequence[str]:
        """What is wrong with this pair, a sentence each; empty if nothing is."""
        faults = []
        for what, a, b in (
            ("connector", prefill.connector, decode.connector),
            ("model", prefill.model, decode.model),
            ("max_model_len", prefill.max_model_len, decode.max_model_len),
            ("tensor_parallel_size", prefill.tensor_parallel_size, decode.tensor_parallel_size),
        ):
            if a is not None and b is not None and a != b:
                faults.append(
                    f"{what} differs: prefill {prefill.engine.id} has {a!r}, decode {decode.engine.id} has {b!r}"
                )
        return faults
