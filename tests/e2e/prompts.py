"""Prompts of 1 to 1,900 tokens, the corners among them, and how each is asked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

BLOCK = 32
"""Tokens of a KV block on CPU engines: `engines/thinker/launch.py`."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True)
class Ask:
    name: str
    path: str
    body: dict[str, Any] = field(compare=False)

    def __str__(self) -> str:
        return self.name


def asks(salt: int) -> list[Ask]:
    """`salt` makes the prompts new, so that no engine has them in its prefix cache."""
    lengths = [1, 2, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 100, 8 * BLOCK, 511, 1024, 1900]
    return [*(_tokens(n, salt) for n in lengths), *_seeded(salt), *_chats(salt)]


def _tokens(length: int, salt: int) -> Ask:
    rng = random.Random(salt * 10_000 + length)
    prompt = [rng.randrange(3, 1000) for _ in range(length)]
    return Ask(f"{length} tokens", "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 24})


def _seeded(salt: int) -> list[Ask]:
    rng = random.Random(salt + 77)
    sampled = {"temperature": 0.9, "top_p": 0.95, "seed": 1234, "max_tokens": 24}
    text = " ".join(str(rng.randrange(10**6)) for _ in range(40))
    return [
        Ask("seeded text", "/v1/completions", {"prompt": text, **sampled}),
        Ask("seeded chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": text[::-1]}], **sampled}),
    ]


def _chats(salt: int) -> list[Ask]:
    talk = [
        {"role": "system", "content": f"You are number {salt}."},
        {"role": "user", "content": "What is the weather in Paris?"},
    ]
    called = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    after = [
        *talk,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    greedy = {"temperature": 0, "max_tokens": 24}
    path = "/v1/chat/completions"
    return [
        Ask("chat", path, {"messages": talk, **greedy}),
        Ask(
            "chat with tools in the prompt",
            path,
            {"messages": talk, "tools": [WEATHER], "tool_choice": "none", **greedy},
        ),
        Ask("chat after a tool call", path, {"messages": after, "tools": [WEATHER], "tool_choice": "none", **greedy}),
    ]
