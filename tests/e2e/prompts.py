"""Prompts of 1 to 1,900 tokens, the corners among them, and how each is asked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

BLOCK = 32
"""Tokens of a KV block on CPU engines: `engines/thinker/launch.py`."""


def weather(name: str) -> dict[str, Any]:
    """A tool whose name makes the prompt new: tools come first in it."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "Weather of a city", "parameters": city}}


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
    """Each begins differently: a shared first block would be a local cache hit on decode."""
    question = {"role": "user", "content": "What is the weather in Paris?"}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    answered = [
        {"role": "system", "content": f"{salt} is a number, and you are an assistant."},
        question,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    plain = [{"role": "system", "content": f"You are number {salt}."}, question]
    greedy = {"temperature": 0, "max_tokens": 24}
    tools = {"tools": [weather(f"w{salt}")], "tool_choice": "none"}
    path = "/v1/chat/completions"
    return [
        Ask("chat", path, {"messages": plain, **greedy}),
        Ask("chat with a tool in the prompt", path, {"messages": [question], **tools, **greedy}),
        Ask("chat after a tool call", path, {"messages": answered, **greedy}),
    ]
