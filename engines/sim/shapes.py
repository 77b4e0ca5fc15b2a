"""vLLM 0.32's JSON: the fields of its protocol classes, in their order.

A whole reply has every field, null where it is not set. A chunk has the fields that the server set, and those alone:
`stop_reason` stands in every chunk of a completion but only in the last one of a chat, `token_ids` in every chunk but
a chat's first, `prompt_token_ids` and `prompt_text` in the first chunk of a chat but in every one of a completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.sim.answer import Answer, Delta

FINGERPRINT = "vllm-0.32.0-sim"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """What all of one answer's chunks share. `created` is Unix seconds."""

    chat: bool
    id: str
    model: str
    created: int


def error(message: str, status: int, *, type_: str, param: str | None = None) -> Json:
    return {"error": {"message": message, "type": type_, "param": param, "code": status}}


def failure(message: str, status: int) -> Json:
    return error(message, status, type_="InternalServerError" if status >= 500 else "BadRequestError")


def models(model: str, max_model_len: int, created: int) -> Json:
    permission = {
        "id": "modelperm-sim",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": model,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
    return {"object": "list", "data": [card]}


def usage(prompt: int, completion: int) -> Json:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def whole_usage(chat: bool, prompt: int, completion: int, cached: int | None) -> Json:
    """`cached` is None where the engine tells no details."""
    details = {"cached_tokens": cached, "created_cache_tokens": 0 if chat else None, "multimodal_tokens": None}
    told = None if cached is None else details
    return {**usage(prompt, completion), "prompt_tokens_details": told, "completion_tokens_details": None}


def whole(head: Head, choices: Sequence[Json], use: Json, kv: Mapping[str, Any] | None, ids: Any) -> Json:
    """`ids` are the prompt's, for chats."""
    prompt = {"prompt_logprobs": None, "prompt_token_ids": ids, "prompt_text": None} if head.chat else {}
    return {
        "id": head.id,
        "object": "chat.completion" if head.chat else "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": use,
        **prompt,
        "kv_transfer_params": kv,
        "ec_transfer_params": None,
        "metrics": None,
    }


def choice(answer: Answer, text: str) -> Json:
    ask, ids = answer.ask, answer.ask.return_token_ids
    end = {"logprobs": None, "finish_reason": answer.finish, "stop_reason": answer.stop_reason}
    tokens = {"token_ids": answer.tokens if ids else None}
    if not ask.chat:
        prompt = {"prompt_logprobs": None, "prompt_token_ids": list(answer.prompt.tokens) if ids else None}
        return {"index": answer.index, "text": text, **end, **tokens, **prompt, "routed_experts": None}
    message = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    return {"index": answer.index, "message": message, **end, **tokens, "routed_experts": None}


def chunk(head: Head, choices: Sequence[Json], **more: Any) -> Json:
    kind = "chat.completion.chunk" if head.chat else "text_completion"
    return {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
        **more,
    }


def role(index: int) -> Json:
    return {
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }


def delta(answer: Answer, step: Delta, text: str, prompt_ids: list[int] | None) -> Json:
    """`prompt_ids` are for completions."""
    ids = {"token_ids": step.token_ids if answer.ask.return_token_ids else None}
    stop = {"stop_reason": step.stop_reason}
    if answer.ask.chat:
        end = {"logprobs": None, "finish_reason": step.finish, **(stop if step.finish is not None else {})}
        return {"index": answer.index, "delta": {"content": text}, **end, **ids}
    end = {"logprobs": None, "finish_reason": step.finish, **stop}
    return {"index": answer.index, "text": text, **end, "prompt_token_ids": prompt_ids, **ids}
