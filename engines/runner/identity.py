"""`GET /duet/identity`: what an engine is, for whoever pairs engines. A vLLM endpoint plugin.

vLLM loads it only where `VLLM_PLUGINS` names it (`duet_identity`); `duet engine thinker` does.

| field | meaning |
| --- | --- |
| `stage` | `thinker`, or `talker`: what it is in a pipeline |
| `role` | `prefill`, `decode` or `both`: as it was started, else as its connector's `kv_role` says |
| `model`, `revision` | the name that it is served as, and the weights' revision; null if none was asked for |
| `connector`, `engine_id` | of the KV connector; null without one |
| `tensor_parallel_size`, `block_size` | ranks; tokens in one KV block |
| `vllm_version` | vLLM's |
| `runner`, `runner_version` | `duet` and its version, or `stock` and null |
| `contract_version` | of the phase contract (`common/phase.py`); null on a runner that does not keep it |
| `channel` | `duet+tcp://host:port` or `duet+ipc:///path`: where its rows or codes are pulled; absent if it has none |
| `speakers` | of a Talker: the voices that it has, the default first; absent elsewhere |

References to what it publishes begin with `channel` (`Reference.within`). A worker's class says what that is,
`publishes = "thinker"` or `"talker"`; `DUET_CHANNEL` says where.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from common.channel.reference import address
from common.conditioning import STAGE as THINKER
from common.engine import Role
from common.registry.process import announce
from engines.runner.runtime import contract_of, worker_class

if TYPE_CHECKING:
    from argparse import Namespace

    from fastapi import FastAPI, Request
    from vllm.config import VllmConfig

PATH = "/duet/identity"
PLUGIN = "duet_identity"
ROLE = "DUET_ENGINE_ROLE"
"""What `duet engine thinker` was told; some connectors have one `kv_role` for both."""

_ROLES = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}


class IdentityPlugin:
    """vLLM's `EndpointPlugin`."""

    name = PLUGIN
    required_tasks = None

    def attach_router(self, app: FastAPI) -> None:
        async def identity(request: Request) -> dict[str, Any]:
            return request.app.state.duet_identity

        identity.__annotations__ = {"request": _request_type()}
        app.add_api_route(PATH, identity, methods=["GET"])

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """`engine_client` is None on a server that only renders prompts: such a one has no identity to tell.

        Where the environment names a registry the engine announces itself there from now on, once it answers.
        """
        served = args.served_model_name or [args.model]
        state.duet_identity = None
        if engine_client is not None:
            state.duet_identity = told = identity_of(engine_client.vllm_config, served[0])
            announce(Role.TALKER if told["stage"] == Role.TALKER else Role(told["role"]), told)


def identity_of(config: VllmConfig, model: str) -> dict[str, Any]:
    """JSON values; see the table above.

    Raises ConfigurationError for a worker that publishes, and is not told where.
    """
    kv = config.kv_transfer_config
    worker = worker_class(config)
    contract = contract_of(worker)
    published = getattr(worker, "publishes", None)
    role = os.environ.get(ROLE) or _ROLES.get(str(kv.kv_role) if kv else "", Role.BOTH).value
    told: dict[str, Any] = {
        "stage": published or THINKER,
        "role": role,
        "model": model,
        "revision": config.model_config.revision,
        "connector": kv.kv_connector if kv else None,
        "engine_id": kv.engine_id if kv else None,
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "block_size": config.cache_config.block_size,
        "vllm_version": _vllm_version(),
        "runner": "duet" if contract else "stock",
        "runner_version": version("duet") if contract else None,
        "contract_version": contract,
    }
    if published:
        told["channel"] = _channel()
    if speakers := getattr(config.model_config.hf_config, "speaker_id", None):
        told["speakers"] = list(speakers)
    return told


def _channel() -> str:
    from engines.channel import endpoint

    return address(endpoint())


def _vllm_version() -> str:
    import vllm

    return str(vllm.__version__)


def _request_type() -> type:
    from fastapi import Request

    return Request
