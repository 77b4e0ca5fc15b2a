"""NIXL pull's handoff: what a prefill returns, and what becomes of a decode that is sent one.

Source: vLLM 0.32, `kv_connector/v1/nixl/pull_scheduler.py`; how real engines fail was tried on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

BLOCK = 32
"""Tokens of one KV block."""
ADDRESS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")


class Fate(Enum):
    """What a real engine does with a decode's `kv_transfer_params`."""

    LOCAL = "computes the prompt itself"
    LOADS = "reads the KV where the handoff says"
    HANGS = "waits for KV that nobody will bring"
    DIES = "the engine core stops"


def returned(
    *, engine: str, request: str, host: str, port: int, tokens: int, blocks: list[int], cached: int
) -> dict[str, Any]:
    """`kv_transfer_params` of a prefill's reply."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [blocks],
        "remote_engine_id": engine,
        "remote_request_id": request,
        "remote_host": host,
        "remote_port": port,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": tokens,
        "remote_blocks_expiry_time": None,
        "transfer_mode": "pull",
        "remote_prefill_cached_tokens": cached,
    }


def fate(params: Mapping[str, Any], prompt: int) -> Fate:
    """For a prompt of so many tokens. No blocks, or too few, break an assertion of the scheduler or the worker."""
    if not params.get("do_remote_prefill"):
        return Fate.LOCAL
    groups = params.get("remote_block_ids")
    if not groups:
        return Fate.DIES
    if any(name not in params for name in ADDRESS):
        return Fate.HANGS
    return Fate.LOADS if len(groups[0]) * BLOCK >= prompt else Fate.DIES
