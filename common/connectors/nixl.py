"""NIXL, pull: decode reads prefill's KV blocks over UCX.

Prefill is told that somebody else will decode, keeps its blocks for the lease and replies where they are; decode
is sent that reply verbatim. Field names and lease: vLLM 0.32, `kv_connector/v1/nixl/scheduler.py`.

Real engines die or hang on a handoff that is not whole (a missing field, too few block ids), so every field is
checked here before decode sees it. That a group has too few blocks cannot be told: layers with a window keep the last
ones only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.connectors.base import (
    NO_LENGTH,
    CancelPolicy,
    Connector,
    Handoff,
    HandoffContext,
    Order,
    Params,
    PrefillReply,
)
from common.engine import Engine, Role
from common.errors import HandoffExpired, HandoffInvalid

LEASE_MARGIN = 0.1
"""Share of the lease that is held back: no decode leaves when less than this is left of it."""
WIDEST = 2**63 - 1
"""Engines keep these numbers in 64 bits."""
MAX_RANKS = 1024
"""Of any kind, in one engine: a wrong number of them would have decode look for as many peers."""


class NixlConnector(Connector):
    name = "NixlConnector"
    aliases: tuple[str, ...] = ("nixl", "NixlPullConnector")
    order = Order.SEQUENTIAL
    cancel = CancelPolicy.REFUSED_DECODE
    transfer_mode = "pull"

    @property
    def default_lease(self) -> float:
        """30 s: vLLM's `kv_lease_duration`. A prefill of 0.32 tells no expiry, so this setting is all there is."""
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
        _check_fields(ctx.prefill, params, self.transfer_mode)
        covered = _covered(ctx.prefill, params, reply.prompt_tokens)
        left = min(self.lease, _told_left(ctx.prefill, params, reply.received_at))
        return Handoff(self.name, dict(params), covered, reply.received_at + left * (1 - LEASE_MARGIN))

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


def _wrong(prefill: Engine, params: Mapping[str, Any], field: str, expected: str) -> HandoffInvalid:
    told = f"prefill returned kv_transfer_params.{field} = {params.get(field)!r:.80}; expected {expected}"
    return HandoffInvalid(told, engine=prefill.id)


def _is_int(low: int, high: int = WIDEST) -> Callable[[object], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


_is_block = _is_int(0)


def _is_blocks(v: object) -> bool:
    """A list of block ids for each KV cache group, none of them empty."""
    return isinstance(v, list) and bool(v) and all(map(_is_group, v))


def _is_group(v: object) -> bool:
    """No block stands there twice but vLLM's null block, 0, which holds the place of those that need not be kept."""
    if not isinstance(v, list) or not v or not all(map(_is_block, v)):
        return False
    held = [block for block in v if block]
    return len(set(held)) == len(held)


def _is_text(v: object) -> bool:
    return isinstance(v, str) and bool(v)


_Field = tuple[str, str, Callable[[object], bool]]
_RANKS = (f"an integer from 1 to {MAX_RANKS}", _is_int(1, MAX_RANKS))
_FIELDS: tuple[_Field, ...] = (
    ("do_remote_prefill", "true", lambda v: v is True),
    ("do_remote_decode", "false", lambda v: v is False),
    ("remote_block_ids", "a non-empty list of lists of block ids, each of them once and in 64 bits", _is_blocks),
    ("remote_engine_id", "a non-empty string", _is_text),
    ("remote_request_id", "a non-empty string", _is_text),
    ("remote_host", "a non-empty string", _is_text),
    ("remote_port", "an integer from 1 to 65535", _is_int(1, 65535)),
    ("tp_size", *_RANKS),
)
_OPTIONAL: tuple[_Field, ...] = (
    ("dcp_size", *_RANKS),
    ("pp_size", *_RANKS),
    ("remote_prefill_cached_tokens", "an integer from 0, or null", lambda v: v is None or _is_int(0)(v)),
)
"""What older engines do not send: checked where it is there."""


def _check_fields(prefill: Engine, params: Mapping[str, Any], mode: str) -> None:
    """Each by itself, and against what prefill says that it is."""
    sent: Sequence[_Field] = [one for one in _OPTIONAL if one[0] in params]
    for field, expected, ok in (*_FIELDS, *sent):
        if not ok(params.get(field)):
            raise _wrong(prefill, params, field, expected)
    if params.get("transfer_mode", mode) != mode:
        raise _wrong(prefill, params, "transfer_mode", f"{mode!r}: is the engine started with another connector?")
    known = prefill.kv_engine
    if known is not None and not _is_rank_of(known, params["remote_engine_id"]):
        raise _wrong(prefill, params, "remote_engine_id", f"{known!r}, as the engine says of itself")


def _is_rank_of(engine: str, named: str) -> bool:
    """The engine's own name, or that of one of its data parallel ranks (vLLM 0.32, `v1/engine/utils.py`)."""
    head, _, rank = named.rpartition("_dp")
    return named == engine or (head == engine and rank.isdecimal())


def _covered(prefill: Engine, params: Mapping[str, Any], prompt: int | None) -> int | None:
    """How many tokens the KV covers: the prompt, or one less for models with state (Mamba, MTP), where vLLM's
    prefill stops one token short. Less than that, and decode would have to recompute what was prefilled; more is
    another prompt's."""
    if prompt is None:
        raise HandoffInvalid(f"{NO_LENGTH}, and its handoff cannot be checked", engine=prefill.id)
    if max(map(len, params["remote_block_ids"])) > prompt:
        raise _wrong(prefill, params, "remote_block_ids", f"at most a block for each of the prompt's {prompt} tokens")
    if "remote_num_tokens" not in params:
        return None  # older engines do not send it, and do not read it either
    if not _is_int(max(1, prompt - 1), prompt)(params["remote_num_tokens"]):
        expected = f"an integer from 1 that covers the prompt of {prompt} tokens, and no more"
        raise _wrong(prefill, params, "remote_num_tokens", expected)
    return int(params["remote_num_tokens"])


def _told_left(prefill: Engine, params: Mapping[str, Any], received_at: float) -> float:
    """Seconds for which prefill says that it keeps the blocks; endless where it does not say."""
    field = "remote_blocks_expiry_time"
    until = params.get(field)
    if until is None:
        return math.inf
    if not isinstance(until, int | float) or isinstance(until, bool) or not abs(until) <= WIDEST:
        raise _wrong(prefill, params, field, "seconds since the epoch, or null")
    if until <= received_at:
        told = f"prefill returned kv_transfer_params.{field} = {until!r}: the KV was given up when its reply came"
        raise HandoffExpired(f"{told}, at {received_at:.1f}", engine=prefill.id)
    return until - received_at
