"""vLLM 0.32's JSON: the fields of its protocol classes, in their order."""

from __future__ import annotations

import time
from typing import Any

FINGERPRINT = "vllm-0.32.0-sim"


def error(message: str, status: int, *, type_: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": param, "code": status}}


def usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached, "created_cache_tokens": 0, "multimodal_tokens": None},
        "completion_tokens_details": None,
    }


def reply(
    chat: bool, id_: str, model: str, choices: list[dict[str, Any]], use: Any, kv: Any, ids: Any
) -> dict[str, Any]:
    body = {
        "id": id_,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": use,
    }
    if chat:
        body |= {"prompt_logprobs": None, "prompt_token_ids": ids, "prompt_text": None}
    return {**body, "kv_transfer_params": kv, "ec_transfer_params": None, "metrics": None}


def choice(chat: bool, index: int, text: str, finish: str, ids: list[int] | None, prompt_ids: Any) -> dict[str, Any]:
    if chat:
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
                   "function_call": None, "reasoning": None}  # fmt: skip
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None,
                "token_ids": ids, "routed_experts": None}  # fmt: skip
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None,
            "token_ids": ids, "prompt_logprobs": None, "prompt_token_ids": prompt_ids,
            "routed_experts": None}  # fmt: skip


def chunk(chat: bool, id_: str, model: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        **more,
    }


def delta(chat: bool, index: int, text: str, finish: str | None, ids: list[int] | None) -> dict[str, Any]:
    if chat:
        return {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": finish,
                "stop_reason": None, "token_ids": ids}  # fmt: skip
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None,
            "prompt_token_ids": None, "token_ids": ids}  # fmt: skip
