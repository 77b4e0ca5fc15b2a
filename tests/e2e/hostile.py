"""Bodies that no well-meaning client sends: values that steer engines, wrong types, huge numbers, no JSON at all. Each
with the answer that is due to it."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httpx

from tests.e2e.checking import SALTS
from tests.real_engines import MAX_LEN

PATHS = CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

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


class Due(Enum):
    """What must come of a body. Nothing else is right: no 5xx, and no 4xx after a prefill."""

    ANSWER = "200"
    REFUSAL = "4xx, and no engine is asked"
    AS_UNSPLIT = "200 or 4xx, as an unsplit engine has it"


@dataclass(frozen=True)
class Hostile:
    path: str
    content: bytes
    due: Due = Due.AS_UNSPLIT

    def __str__(self) -> str:
        return f"POST {self.path} {self.content[:300]!r}, due: {self.due.value}"


LOOSE: list[tuple[dict[str, Any], Due]] = [
    ({"max_tokens": "2.0"}, Due.ANSWER),
    ({"max_tokens": " 2 "}, Due.ANSWER),
    ({"min_tokens": "2.0"}, Due.ANSWER),
    ({"n": "2.0", "temperature": 1}, Due.ANSWER),
    ({"n": "1.0"}, Due.ANSWER),
    ({"n": 1.0, "stream": True}, Due.ANSWER),
    ({"ignore_eos": "yes"}, Due.ANSWER),
    ({"stop_token_ids": ["3.0", 4.0]}, Due.ANSWER),
    ({"truncate_prompt_tokens": "-1.0"}, Due.ANSWER),
    ({"max_tokens": "2.5"}, Due.REFUSAL),
    ({"max_tokens": f"{MAX_LEN + 1}.0"}, Due.REFUSAL),
    ({"max_tokens": "9" * 5000}, Due.REFUSAL),
    ({"n": "two"}, Due.REFUSAL),
    ({"min_tokens": "2.0.0"}, Due.REFUSAL),
    ({"stop_token_ids": ["3.5"]}, Due.REFUSAL),
    ({"logprob_token_ids": "3"}, Due.REFUSAL),
    ({"structured_outputs": "json"}, Due.REFUSAL),
    ({"stream": "true"}, Due.REFUSAL),
    ({"stream": True, "stream_options": {"continuous_usage_stats": "x"}}, Due.REFUSAL),
    ({"stream_options": {"include_usage": True}}, Due.REFUSAL),
    ({"model": "another"}, Due.REFUSAL),
    ({"model": None}, Due.REFUSAL),
]
"""Numbers as strings and the like: what vLLM reads loosely is read so, and what it does not is refused early."""


def crafted() -> list[Hostile]:
    """Bodies whose answers are known beforehand."""
    tables = [
        *LOOSE,
        *(({"kv_transfer_params": value}, Due.ANSWER) for value in STEERING),
        *(({"vllm_xargs": {"kv_transfer_params": value}}, Due.ANSWER) for value in STEERING),
        *(({"max_tokens": budget}, Due.REFUSAL) for budget in BEYOND_THE_BUDGET[1:]),
    ]
    bodies = [
        Hostile(path, json.dumps(_plain(path) | fields).encode(), due) for path in PATHS for fields, due in tables
    ]
    return [*bodies, *(Hostile(path, content, Due.REFUSAL) for path in PATHS for content in NOT_JSON)]


def _plain(path: str) -> dict[str, Any]:
    said = f"hostile {next(SALTS)}"
    prompt = {"prompt": said} if path == COMPLETIONS else {"messages": [{"role": "user", "content": said}]}
    return {"model": "tiny", "max_tokens": 3, **prompt}


def hostile(dice: random.Random) -> Hostile:
    """A body made by chance."""
    path = dice.choice(PATHS)
    body = _plain(path)
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


_HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
_BODY = b'{"model": "tiny", "prompt": "framed", "max_tokens": 3}'
_CHUNK = b"%x\r\n%s\r\n" % (len(_BODY), _BODY)
_CHUNKED = b"transfer-encoding: chunked\r\n"
_LENGTH = b"content-length: %d\r\n"
FRAMED: dict[str, tuple[bytes, int]] = {
    "good": (_HEAD + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 200),
    "good, in chunks": (_HEAD + _CHUNKED + b"\r\n" + _CHUNK + b"0\r\n\r\n", 200),
    "behind an offer": (
        _HEAD.replace(b"close", b"close, upgrade") + b"upgrade: h2c\r\n" + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 200,
    ),
    "two lengths": (_HEAD + _LENGTH % len(_BODY) + _LENGTH % 5 + b"\r\n" + _BODY, 400),
    "a length and chunks": (_HEAD + _LENGTH % 5 + _CHUNKED + b"\r\n" + _CHUNK + b"0\r\n\r\n", 400),
    "a negative length": (_HEAD + b"content-length: -5\r\n\r\n" + _BODY, 400),
    "a length in words": (_HEAD + b"content-length: five\r\n\r\n" + _BODY, 400),
    "too short a length": (_HEAD + _LENGTH % (len(_BODY) - 9) + b"\r\n" + _BODY, 400),
    "no length": (_HEAD + b"\r\n" + _BODY, 400),
    "too long a chunk": (_HEAD + _CHUNKED + b"\r\n" + b"ff" + _CHUNK[2:] + b"0\r\n\r\n" + b" " * 300, 400),
    "too short a chunk": (_HEAD + _CHUNKED + b"\r\n5" + _CHUNK[2:] + b"0\r\n\r\n", 400),
    "a chunk of no size": (_HEAD + _CHUNKED + b"\r\nzz\r\n", 400),
    "a chunk without end": (_HEAD + _CHUNKED + b"\r\n" + b"f" * 40 + b"\r\n", 400),
    "another coding": (_HEAD + b"transfer-encoding: gzip\r\n\r\n" + _BODY, 501),
    "a header without name": (_HEAD + b": x\r\n" + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 400),
    "a header with a zero byte": (_HEAD + b"x-a: \0\r\n" + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 400),
    "another type": (_HEAD.replace(b"application/json", b"text/plain") + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 415),
    "another method": (_HEAD.replace(b"POST", b"PUT") + _LENGTH % len(_BODY) + b"\r\n" + _BODY, 405),
    "no method": (_HEAD.replace(b"POST", b"!!") + b"\r\n", 400),
}  # fmt: skip
"""What is sent, and the status that is due to it."""


async def exchange(url: str, sent: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to bytes as they are."""
    at = httpx.URL(url)
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(sent)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def is_error(body: bytes) -> bool:
    """Whether it is an error in OpenAI's shape, and nothing else."""
    return _is_error(json.loads(body))


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
