"""What replies look like, field by field and in this order: vLLM 0.32."""

from __future__ import annotations

MODEL_CARD = ["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"]

_HEAD = ["id", "object", "created", "model", "choices"]
_WHOLE = [*_HEAD, "service_tier", "system_fingerprint", "usage"]
_TRANSFER = ["kv_transfer_params", "ec_transfer_params", "metrics"]

WHOLE_CHAT = [*_WHOLE, "prompt_logprobs", "prompt_token_ids", "prompt_text", *_TRANSFER]
WHOLE_TEXT = [*_WHOLE, *_TRANSFER]
CHOICE_CHAT = ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"]
CHOICE_TEXT = [
    *("index", "text", "logprobs", "finish_reason", "stop_reason"),
    *("token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts"),
]
MESSAGE = ["role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"]
USAGE = ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"]
DETAILS = ["cached_tokens", "created_cache_tokens", "multimodal_tokens"]

CHUNK = _HEAD
FIRST_CHUNK_CHAT = [*_HEAD, "prompt_token_ids", "prompt_text"]
LAST_CHUNK = [*_HEAD, "system_fingerprint"]
"""Of a stream without usage."""
USAGE_CHUNK = [*_HEAD, "usage", "system_fingerprint"]
USAGE_IN_CHUNK = ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"]

ROLE_CHOICE = ["index", "delta", "logprobs", "finish_reason"]
DELTA_CHAT = [*ROLE_CHOICE, "token_ids"]
LAST_DELTA_CHAT = [*ROLE_CHOICE, "stop_reason", "token_ids"]
DELTA_TEXT = ["index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"]

HANDOFF = {
    "do_remote_prefill": bool,
    "do_remote_decode": bool,
    "remote_block_ids": list,
    "remote_engine_id": str,
    "remote_request_id": str,
    "remote_host": str,
    "remote_port": int,
    "tp_size": int,
    "dcp_size": int,
    "pp_size": int,
    "remote_num_tokens": int,
    "remote_blocks_expiry_time": type(None),
    "transfer_mode": str,
    "remote_prefill_cached_tokens": int,
}
"""Prefill's `kv_transfer_params`, NIXL pull."""

ERROR = ["message", "type", "param", "code"]
