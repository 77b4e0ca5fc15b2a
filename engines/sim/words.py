"""A tokenizer of bytes and words, and a "model" whose next token is a checksum of all tokens before it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

BYTE_BASE = 3
WORD_BASE = 300
WORDS = 700
VOCABULARY = WORD_BASE + WORDS


def encode(text: str) -> list[int]:
    return [BYTE_BASE + byte for byte in text.encode()]


def decode(token: int) -> str:
    """A generated token's text: a word with its number. Bytes of a prompt come back as Latin-1."""
    return f" w{token - WORD_BASE}" if token >= WORD_BASE else chr(max(0, token - BYTE_BASE))


def render(body: dict[str, Any]) -> list[int]:
    """The prompt's tokens: everything that shapes a chat prompt, as JSON; or a completion's text or ids."""
    if "messages" in body:
        shaping = ("messages", "tools", "tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs")
        return encode(json.dumps([body.get(name) for name in shaping]))
    prompt = body["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        (prompt,) = prompt
    return encode(prompt) if isinstance(prompt, str) else list(prompt)


def absorb(state: int, tokens: Iterable[int]) -> int:
    """The "KV" after these tokens: a checksum, 32 bits."""
    for token in tokens:
        state = zlib.crc32(token.to_bytes(4, "little"), state)
    return state


def next_token(state: int, seed: int = 0) -> int:
    return WORD_BASE + zlib.crc32(seed.to_bytes(8, "little", signed=True), state) % WORDS
