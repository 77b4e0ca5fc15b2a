"""Mooncake: both legs at once. Decode asks prefill's bootstrap server where a transfer id's KV is, and waits for it.

Prefill returns nothing: all that decode must know is the transfer id, which the gateway makes, and the prefill engine's
id and bootstrap address. The id changes whenever the engine restarts, so it is asked for with each health check:
`GET <bootstrap>/query` gives `{"<data parallel rank>": {"engine_id": …, "worker_addr": …}}`. Field names and timeouts:
vLLM 0.32, `kv_connector/v1/mooncake/mooncake_connector.py`, `mooncake_utils.py`.

An engine with several data parallel ranks has an id for each; the rank that prefills must be the one that decode asks,
so it is chosen by the transfer id and told to prefill in a header.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from common.connectors.base import (
    CancelPolicy,
    Connector,
    Handoff,
    HandoffContext,
    Lookup,
    Order,
    Params,
    PrefillReply,
)
from common.engine import Engine, Role
from common.errors import ConfigurationError, EngineBroken, HandoffInvalid

BOOTSTRAP_PORT = 8998
"""vLLM's `VLLM_MOONCAKE_BOOTSTRAP_PORT`."""
_PORT = "bootstrap_port"
_RANK = "engine_id."


class MooncakeConnector(Connector):
    name = "MooncakeConnector"
    aliases = ("mooncake",)
    order = Order.CONCURRENT
    cancel = CancelPolicy.LEASE
    options = MappingProxyType({_PORT: f"port of the engine's bootstrap server ({BOOTSTRAP_PORT})"})

    @property
    def default_lease(self) -> float:
        """480 s: vLLM's `VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT`."""
        return 480.0

    def prefill_params(self, ctx: HandoffContext) -> Params:
        return {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": ctx.transfer_id}

    def prefill_headers(self, ctx: HandoffContext) -> Mapping[str, str]:
        ranks = _ranks(ctx.prefill)
        return {"x-data-parallel-rank": _rank(ctx)} if len(ranks) > 1 else {}

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        """From the context alone. Raises HandoffInvalid if the bootstrap server has not told the engine's id yet."""
        ranks = _ranks(ctx.prefill)
        if not ranks:
            raise HandoffInvalid(
                f"the engine id of {ctx.prefill.id} is not known; expected one from {_bootstrap(ctx.prefill)}/query",
                engine=ctx.prefill.id,
            )
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "transfer_id": ctx.transfer_id,
            "remote_engine_id": ranks[_rank(ctx)],
            "remote_bootstrap_addr": _bootstrap(ctx.prefill),
        }
        return Handoff(self.name, params, None, ctx.now + self.lease * 0.9)

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params:
        return handoff.params

    def lookup(self, prefill: Engine) -> Lookup:
        return Lookup(_bootstrap(prefill), "/query")

    def learn(self, prefill: Engine, body: bytes) -> Mapping[str, str]:
        try:
            told = json.loads(body)
            ids = {str(int(rank)): entry["engine_id"] for rank, entry in told.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            ids = {}
        if not ids or not all(isinstance(id_, str) and id_ for id_ in ids.values()):
            seen = body[:80].decode("utf-8", "replace")
            raise EngineBroken(
                f"the bootstrap server of {prefill.id} answered {seen!r}; expected an engine_id for each rank",
                engine=prefill.id,
            )
        return {f"{_RANK}{rank}": id_ for rank, id_ in ids.items()}

    def url_options(self, *, side_port: int) -> Mapping[str, str]:
        return {_PORT: str(side_port)}

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        roles = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer", Role.BOTH: "kv_both"}
        extra = {"mooncake_protocol": "tcp"} if device == "cpu" else {}
        return {"kv_connector": self.name, "kv_role": roles[role], "kv_connector_extra_config": extra}

    def engine_env(self, *, host: str, side_port: int) -> dict[str, str]:
        return {
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(side_port),
            "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": str(math.ceil(self.lease)),
        }


def _bootstrap(prefill: Engine) -> str:
    """`http://host:port`. Raises ConfigurationError for a port in the URL that is none."""
    port = prefill.facts.get(_PORT, str(BOOTSTRAP_PORT))
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise ConfigurationError(f"{_PORT}={port!r} of engine {prefill.id}: expected a port from 1 to 65535")
    host = urlsplit(prefill.url).hostname or ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _ranks(prefill: Engine) -> Mapping[str, str]:
    return {name.removeprefix(_RANK): id_ for name, id_ in prefill.facts.items() if name.startswith(_RANK)}


def _rank(ctx: HandoffContext) -> str:
    ranks = sorted(_ranks(ctx.prefill), key=int)
    return ranks[zlib.crc32(ctx.transfer_id.encode()) % len(ranks)]
