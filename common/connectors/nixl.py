"""NIXL, pull: decode reads prefill's KV blocks over UCX.

Prefill is told that somebody else will decode, keeps its blocks for the lease and replies where they are; decode
is sent that reply verbatim. Field names and lease: vLLM 0.32, `kv_connector/v1/nixl/scheduler.py`.

Real engines die or hang on a handoff that is not whole (a missing field, too few block ids), so every field is
checked here before decode sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.connectors.base import (
    CancelPolicy,
    Connector,
    Handoff,
    HandoffContext,
    Order,
    Params,
    PrefillReply,
)
from common.engine import Role
from common.errors import HandoffInvalid

LEASE_MARGIN = 0.1
"""Share of the lease that is held back: no decode leaves when less than this is left of it."""


class NixlConnector(Connector):
    name = "NixlConnector"
    aliases: tuple[str, ...] = ("nixl", "NixlPullConnector")
    order = Order.SEQUENTIAL
    cancel = CancelPolicy.REFUSED_DECODE

    @property
    def default_lease(self) -> float:
        """30 s: vLLM's `kv_lease_duration`. Prefill's reply carries no expiry, so this setting is all there is."""
        return 30.0

    def prefill_params(self, ctx: HandoffContext) -> Params:
        return {"do_remote_decode": True, "do_remote_prefill": False}

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        if reply is None:
            raise TypeError("NIXL is sequential: its handoff is made from prefill's reply")
        params = reply.params
        if params is None:
            raise HandoffInvalid(
                "prefill returned kv_transfer_params null; expected NIXL routing metadata: is the engine started "
                "with NixlConnector as kv_producer or kv_both?",
                engine=ctx.prefill.id,
            )
        for field, expected, ok in _FIELDS:
            value = params.get(field)
            if not ok(value):
                raise HandoffInvalid(
                    f"prefill returned kv_transfer_params.{field} = {value!r:.80}; expected {expected}",
                    engine=ctx.prefill.id,
                )
        covered = _covered(ctx, params, reply.prompt_tokens)
        return Handoff(self.name, dict(params), covered, reply.received_at + self.lease * (1 - LEASE_MARGIN))

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params:
        return handoff.params

    def identity(self, handoff: Handoff) -> str:
        return f"{handoff.params['remote_engine_id']}/{handoff.params['remote_request_id']}"

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        roles = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer", Role.BOTH: "kv_both"}
        return {
            "kv_connector": self.name,
            "kv_role": roles[role],
            "kv_buffer_device": device,
            "kv_load_failure_policy": "fail",  # a recompute would be silent: the gateway decides, not the engine
            "kv_connector_extra_config": {"kv_lease_duration": self.lease},
        }

    def engine_env(self, *, host: str, side_port: int) -> dict[str, str]:
        return {"VLLM_NIXL_SIDE_CHANNEL_HOST": host, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_port)}


def _is_int(low: int) -> Any:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low


def _is_blocks(v: object) -> bool:
    """A list of block ids for each KV cache group: non-empty lists of non-negative integers."""
    whole = _is_int(0)
    return (
        isinstance(v, list)
        and bool(v)
        and all(isinstance(group, list) and group and all(map(whole, group)) for group in v)
    )


def _is_text(v: object) -> bool:
    return isinstance(v, str) and bool(v)


_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("do_remote_prefill", "true", lambda v: v is True),
    ("do_remote_decode", "false", lambda v: v is False),
    ("remote_block_ids", "a non-empty list of lists of block ids", _is_blocks),
    ("remote_engine_id", "a non-empty string", _is_text),
    ("remote_request_id", "a non-empty string", _is_text),
    ("remote_host", "a non-empty string", _is_text),
    ("remote_port", "an integer from 1 to 65535", lambda v: _is_int(1)(v) and v <= 65535),
    ("tp_size", "an integer from 1", _is_int(1)),
)


def _covered(ctx: HandoffContext, params: Mapping[str, Any], prompt: int | None) -> int | None:
    """How many tokens the KV covers: the prompt, or one less for models with state (Mamba, MTP), where vLLM's
    prefill stops one token short. Less than that, and decode would have to recompute what was prefilled."""
    if "remote_num_tokens" not in params:
        return None  # older engines do not send it, and do not read it either
    covered = params["remote_num_tokens"]
    if not _is_int(1)(covered) or (prompt is not None and covered < prompt - 1):
        raise HandoffInvalid(
            f"prefill returned kv_transfer_params.remote_num_tokens = {covered!r}; "
            f"expected an integer from 1 that covers the prompt of {prompt} tokens",
            engine=ctx.prefill.id,
        )
    return int(covered)
