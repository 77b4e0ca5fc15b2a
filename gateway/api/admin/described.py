"""What the API's description says of the admin endpoints: an example of each answer, and which errors there may be.

A test asks a running gateway for each, and holds its answer's fields against these.
"""

from __future__ import annotations

from typing import Any

from common.connectors import DEFAULT

Json = dict[str, Any]

_AT = 1767225600.25
_PREFILL, _DECODE, _REPLICA = "10.0.0.1:8100", "10.0.0.2:8200", "gateway-1-9f2c41aa"

ADDED: Json = {
    "url": "http://10.0.0.3:8200",
    "role": "decode",
    "identity": {"model": "qwen3-omni", "tensor_parallel_size": 2, "block_size": 16},
}
ENGINE: Json = {
    "id": _PREFILL,
    "url": f"http://{_PREFILL}",
    "role": "prefill",
    "up": True,
    "fault": None,
    "draining": False,
    "leaving": False,
    "refused": False,
    "source": "settings",
    "models": {"qwen3-omni": 32768},
    "load": 3,
    "running_here": 2,
    "breaker": "closed",
    "kv": {"usage": 0.41, "lease_seconds": 30.0},
    "running": 3,
    "waiting": 0,
    "identity": {
        "role": "prefill",
        "model": "qwen3-omni",
        "revision": None,
        "connector": DEFAULT,
        "engine_id": "5d1f2b0e-6d5b-4f0f-8d4e-1f6e0c2a9b77",
        "tensor_parallel_size": 2,
        "block_size": 16,
        "vllm_version": "0.32.0",
        "runner": "duet",
        "runner_version": "0.1.0",
        "contract_version": 1,
    },
    "checked_at": _AT,
}
ENGINES: Json = {"replica": _REPLICA, "engines": [ENGINE]}
REMOVED: Json = {"id": _DECODE, "removed": True, "running": True}
TOPOLOGY: Json = {
    "replica": _REPLICA,
    "connector": {"name": DEFAULT, "order": "sequential", "lease_seconds": 30.0, "cancel": "refused_decode"},
    "stages": [{"id": "prefill", "name": "Thinker prefill", "engines": [_PREFILL], "routable": 1}],
    "engines": [ENGINE],
    "sources": [{"name": "settings", "engines": 2, "fault": None}],
    "edges": [
        {
            "from": "gateway",
            "to": _PREFILL,
            "kind": "prefill",
            "requests": 180,
            "per_second": 3.0,
            "running": 2,
            "failed": 1,
            "retried": 4,
            "mean_seconds": 0.182,
        }
    ],
    "edges_fault": None,
    "window_seconds": 60.0,
    "models": {"qwen3-omni": {"max_model_len": 32768}},
    "routable": {"prefill": True, "decode": True},
}
_CHOSEN: Json = {"prefill": _PREFILL, "decode": _DECODE}
_SUMMARY: Json = {
    "id": "4f1c2a7be8d94c07b0a5c1de",
    "client_request_id": "order-17",
    "state": "finished",
    "model": "qwen3-omni",
    "endpoint": "/v1/chat/completions",
    "stream": True,
    "attempt": 1,
    "prefill": _PREFILL,
    "decode": _DECODE,
    "unsplit": None,
    "speech": "done",
    "talker": "10.0.0.4:8300",
    "code2wav": "10.0.0.5:8400",
    "replica": _REPLICA,
    "created_at": _AT,
    "updated_at": _AT + 2.1,
    "error": None,
}
CANCELLED: Json = {**_SUMMARY, "state": "cancelled"}
REQUESTS: Json = {"requests": [_SUMMARY], "next": f"{_AT:.9f}_{_SUMMARY['id']}"}
REQUEST: Json = {
    **_SUMMARY,
    "version": 5,
    "connector": DEFAULT,
    "conditioning": ["duet+tcp://10.0.0.2:5570/thinker/4f1c2a7be8d94c07b0a5c1de"],
    "handoff": {"params": {"remote_block_ids": {"lists": 1, "entries": 7}}, "expires_at": _AT + 25},
    "usage": {"prompt_tokens": 110, "completion_tokens": 64, "total_tokens": 174},
    "timings": {"accepted": _AT, "prefilling": _AT + 0.001, "first_byte": _AT + 0.23},
    "phases": {"prefilling": 0.2, "prefilled": 0.001, "decoding": 1.9, "total": 2.1, "time_to_first_byte": 0.23},
    "events": [{"id": "1767225600250-0", "at": _AT, "event": "admitted", "state": "accepted", "engines": _CHOSEN}],
    "spans": [{"name": "prefill", "attempt": 1, "start": _AT + 0.001, "end": _AT + 0.2, "engine": _PREFILL}],
    "now": _AT + 60,
}
CONFIG: Json = {
    "replica": _REPLICA,
    "settings": [
        {
            "name": "admin_key",
            "environment": "DUET_ADMIN_KEY",
            "value": "set",
            "secret": True,
            "default": False,
            "description": "key for the admin endpoints",
        }
    ],
}
EVENTS = (
    "retry: 1000\n\n"
    "event: request\nid: 1767225602350-0\n"
    'data: {"event":"completed","request":"4f1c2a7be8d94c07b0a5c1de","state":"finished","version":5,"at":1767225602.35}'
    "\n\n"
)

_ERRORS = {
    400: ("A parameter or a field of the body is wrong; the message names it", "invalid_request"),
    401: ("No key, or one that is not known", "invalid_api_key"),
    403: ("A client's key", "forbidden"),
    404: ("It is not there", "not_found"),
    409: ("It contradicts what is there; the message names both sides", "conflict"),
    503: ("Redis, or the replica that runs the request, does not answer; try again after `Retry-After`", None),
}


def answers(example: Json, *errors: int, status: int = 200) -> dict[int | str, Json]:
    """FastAPI's `responses`: an example of the answer, and the errors that there may be beside 401 and 403."""
    ok = {"description": "The answer", "content": {"application/json": {"example": example}}}
    return {status: ok, **_errors(errors)}


def streams(example: str, *errors: int) -> dict[int | str, Json]:
    """The same for a stream of server-sent events."""
    schema = {"type": "string"}
    ok = {"description": "Events", "content": {"text/event-stream": {"schema": schema, "example": example}}}
    return {200: ok, **_errors(errors)}


def _errors(statuses: tuple[int, ...]) -> dict[int | str, Json]:
    return {status: _error(status) for status in sorted({401, 403, *statuses})}


def _error(status: int) -> Json:
    description, code = _ERRORS[status]
    error = {"message": description, "type": "invalid_request_error", "param": None, "code": code}
    return {"description": description, "content": {"application/json": {"example": {"error": error}}}}
