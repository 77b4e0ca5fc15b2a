"""What a real prefill engine answered, for each connector: the raw material of the contract suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.connectors import CONNECTORS, Connector
from common.connectors.nixl import NixlConnector


@dataclass(frozen=True)
class Sample:
    """`reply` is prefill's `kv_transfer_params` for a prompt of `prompt_tokens`; `required` are the fields without
    which decode must not be called. `null_is_legal` says whether a null reply is how this connector works."""

    reply: Mapping[str, Any] | None
    prompt_tokens: int
    required: tuple[str, ...]
    null_is_legal: bool
    may_be_absent: tuple[str, ...] = ()
    """Of the required fields, those that older engines leave out altogether; null is wrong all the same."""


SAMPLES: Mapping[type[Connector], Sample] = {
    NixlConnector: Sample(
        reply={
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[1, 2, 3, 4]],
            "remote_engine_id": "5f0c9a0e-6a3a-4c8e-9d0f-1f6f6f0f7f11",
            "remote_request_id": "cmpl-abc-1-prefill-0-9c1d",
            "remote_host": "127.0.0.1",
            "remote_port": 5600,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": 110,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": 0,
        },
        prompt_tokens=110,
        required=(
            "do_remote_prefill",
            "do_remote_decode",
            "remote_block_ids",
            "remote_engine_id",
            "remote_request_id",
            "remote_host",
            "remote_port",
            "tp_size",
            "remote_num_tokens",
        ),
        null_is_legal=False,
        may_be_absent=("remote_num_tokens",),
    ),
}

assert set(SAMPLES) == set(CONNECTORS), "every connector has a sample, or the contract suite would pass it by"
