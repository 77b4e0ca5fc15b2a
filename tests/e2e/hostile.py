"""Bodies that no well-meaning client sends: values that steer engines, wrong types, huge numbers, no JSON at all."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import httpx

from tests.e2e.checking import SALTS
from tests.real_engines import MAX_LEN

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1.5, 10**30, -(10**30), 1e308, 2**31, 2**63, 2**64, "", "x", "1", [], [1], ["a"],
    {}, {"a": 1}, [[]], [[], []], [None], {"json": 5}, {"regex": "("}, "é" * 50, "\u0000", "\ud83d\ude00", [2**63],
    {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}},
    [{"type": "function"}], [{"type": "function", "function": {"name": "f", "parameters": 5}}], "x" * 5000,
]  # fmt: skip
ODD_FIELDS = (
    "prompt", "max_tokens", "max_completion_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed",
    "stop", "stop_token_ids", "n", "logprobs", "top_logprobs", "logit_bias", "echo", "suffix", "user", "best_of",
    "use_beam_search", "response_format", "structured_outputs", "guided_json", "stream_options", "bad_words",
    "truncate_prompt_tokens", "allowed_token_ids", "prompt_logprobs", "priority", "cache_salt", "repetition_penalty",
    "presence_penalty", "ignore_eos", "include_stop_str_in_output", "vllm_xargs", "add_special_tokens", "chat_template",
    "skip_special_tokens", "return_token_ids", "prompt_embeds", "request_id", "messages", "tools", "tool_choice",
    "documents", "mm_processor_kwargs", "chat_template_kwargs", "reasoning_effort", "continue_final_message",
)  # fmt: skip
STEERING: list[Any] = [
    {"do_remote_prefill": True},
    {"do_remote_decode": True, "do_remote_prefill": True},
    {"do_remote_prefill": True, "remote_block_ids": [[1]], "remote_engine_id": "x"},
    {"do_remote_prefill": True, "remote_block_ids": [], "remote_engine_id": "x", "remote_host": "h", "remote_port": 1},
    {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[10**9]], "remote_engine_id": "x",
        "remote_request_id": "y", "remote_host": "127.0.0.1", "remote_port": 9, "tp_size": 10**6,
    },
    {"prompt_token_ids": [1] * 5000},
    {"prompt_token_ids": [10**9]},
    {"transfer_id": "x" * 10000, "remote_port": -5},
    [1], "x", 7,
]  # fmt: skip
HUGE_IDS: list[Any] = [[10**9], [-1], [2**63], [[1], [10**9]], [1.5], list(range(MAX_LEN + 1)), [1, 999999, 2]]
BEYOND_THE_BUDGET = [MAX_LEN, MAX_LEN + 1, 10**9, 2**63]
NOT_JSON = [
    b"", b"{", b"[]", b"null", b"NaN", b'{"model": "tiny", "prompt": NaN}', b"\xff\xfe", b'"' * 999, b"[" * 9999,
]  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    path: str
    content: bytes

    def __str__(self) -> str:
        return f"POST {self.path} {self.content[:300]!r}"


def hostile(dice: random.Random) -> Hostile:
    path = dice.choice([CHAT, COMPLETIONS])
    if dice.random() < 0.05:
        return Hostile(path, dice.choice(NOT_JSON))
    body: dict[str, Any] = {"model": "tiny", "max_tokens": 3}
    said = f"hostile {next(SALTS)}"
    body |= {"prompt": said} if path == COMPLETIONS else {"messages": [{"role": "user", "content": said}]}
    for name in dice.sample(ODD_FIELDS, dice.randint(1, 3)):
        body[name] = dice.choice(ODD_VALUES)
    if dice.random() < 0.3:
        body["kv_transfer_params"] = dice.choice(STEERING)
    if dice.random() < 0.1:
        body["vllm_xargs"] = {"kv_transfer_params": dice.choice(STEERING)}
    if dice.random() < 0.2:
        body["max_tokens"] = dice.choice(BEYOND_THE_BUDGET)
    if dice.random() < 0.2 and path == COMPLETIONS:
        body["prompt"] = dice.choice(HUGE_IDS)
    if dice.random() < 0.3:
        body["stream"] = True
    return Hostile(path, json.dumps(body).encode())


def well_formed(reply: httpx.Response) -> bool:
    """OpenAI's shape, whatever the status; a stream that ended."""
    if reply.headers["content-type"].startswith("text/event-stream"):
        *events, last = reply.text.removesuffix("\n\n").split("\n\n")
        return last == "data: [DONE]" and all(map(_is_event, events))
    found = json.loads(reply.content)
    return bool(found["choices"]) if reply.status_code == 200 else _is_error(found)


def _is_event(event: str) -> bool:
    found = json.loads(event.removeprefix("data:"))
    return "choices" in found or _is_error(found)


def _is_error(found: Any) -> bool:
    error = found["error"]
    return (
        set(error) == {"message", "type", "param", "code"}
        and bool(error["message"])
        and isinstance(error["type"], str)
        and isinstance(error["code"], str | None)
    )
