"""Who a Code2Wav is, and who may ask it: the same names as of a vLLM engine (`engines/runner/identity.py`)."""

from __future__ import annotations

import os
import secrets
from importlib.metadata import version
from typing import Any

from common.engine import Role
from common.errors import Unauthorized

PATH = "/duet/identity"
API_KEY = "DUET_ENGINE_API_KEY"
"""The key that whoever asks for speech must send; without it anybody may."""
STAGE = "code2wav"


def identity_of(model: str) -> dict[str, Any]:
    """JSON values. What only vLLM has is null. There is no `channel`: it publishes nothing, its audio is its answer."""
    return {
        "stage": STAGE,
        "role": Role.BOTH.value,
        "model": model,
        "revision": None,
        "connector": None,
        "engine_id": None,
        "tensor_parallel_size": 1,
        "block_size": None,
        "vllm_version": None,
        "runner": "duet",
        "runner_version": version("duet"),
        "contract_version": None,
    }


def models_of(model: str) -> dict[str, Any]:
    """OpenAI's list of models, of the one that it speaks for: what a gateway pairs it with Thinkers by."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "duet"}]}


def key_of_environment() -> str | None:
    return os.environ.get(API_KEY) or None


def require_key(key: str | None, authorization: str | None) -> None:
    """Raises Unauthorized unless the header is `Bearer` and the key; without a key all may."""
    if key is None:
        return
    scheme, _, given = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), key.encode()):
        raise Unauthorized("the header authorization has no valid key: expected Bearer and this engine's key")
