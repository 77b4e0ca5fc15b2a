"""What a real prefill engine answered, for each connector: the raw material of the contract suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from common.connectors import CONNECTORS
from common.engine import Engine, Role


@dataclass(frozen=True)
class Sample:
    """`reply` is prefill's `kv_transfer_params` for a prompt of `prompt_tokens`, None where that is what it says.

    `required` are the fields of it without which decode must not be called; of those, `may_be_absent` are left out
    altogether by older engines (null is wrong all the same). `looked_up` is the answer to the connector's lookup.
    """

    reply: Mapping[str, Any] | None = None
    prompt_tokens: int = 110
    required: tuple[str, ...] = ()
    may_be_absent: tuple[str, ...] = ()
    looked_up: bytes | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """What `looked_up` teaches."""

    def prefill(self) -> Engine:
        """A prefill engine of which everything is known that there is to know."""
        return Engine("127.0.0.1:8100", "http://127.0.0.1:8100", Role.PREFILL, self.facts)


_NIXL = Sample(
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
    may_be_absent=("remote_num_tokens",),
)
_MOONCAKE = Sample(
    looked_up=b'{"0":{"engine_id":"e0","worker_addr":{"0":{"0":"tcp://127.0.0.1:1"}}},"1":{"engine_id":"e1"}}',
    facts={"engine_id.0": "e0", "engine_id.1": "e1"},
)

SAMPLES: Mapping[str, Sample] = {
    "NixlConnector": _NIXL,
    "NixlPushConnector": replace(_NIXL, reply={**(_NIXL.reply or {}), "transfer_mode": "push"}),
    "MooncakeConnector": _MOONCAKE,
    "ExampleConnector": Sample(),
    "Multi(NixlConnector, ExampleConnector)": _NIXL,
    "Multi(ExampleConnector, MooncakeConnector)": _MOONCAKE,
}

assert {kind.name for kind in CONNECTORS} <= set(SAMPLES), "a connector without a sample would pass the suite unseen"
