"""A tokenizer of bytes and words, and a "model" whose next token is a checksum of all tokens before it.

| ids | what they are |
| --- | --- |
| 0 | the end token: nothing else is special |
| 3 to 258 | bytes: what prompts are made of |
| 300 to 999 | words: what answers are made of, ` w0` to ` w699` |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

END = 0
BYTE_BASE = 3
WORD_BASE = 300
WORDS = 700
VOCABULARY = WORD_BASE + WORDS

SHAPING = ("messages", "tools", "tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs")
"""All that a chat template may put into a prompt. Here it does: a leg that loses one of them has another prompt."""


def encode(text: str, *, rotated: int = 0) -> list[int]:
    """`rotated` makes it another model's tokenizer: each byte's id is that many further on."""
    return [BYTE_BASE + (byte + rotated) % 256 for byte in text.encode()]


def decode(tokens: Iterable[int]) -> str:
    """The text of these tokens; bytes that are no UTF-8 become replacement characters."""
    return b"".join(map(_piece, tokens)).decode(errors="replace")


def _piece(token: int) -> bytes:
    if token >= WORD_BASE:
        return b" w%d" % (token - WORD_BASE)
    return bytes([token - BYTE_BASE]) if BYTE_BASE <= token < BYTE_BASE + 256 else b""


def render(chat: Mapping[str, Any]) -> list[int]:
    """The prompt of a chat body: everything that shapes it, as JSON."""
    shaping = {**chat, "messages": [_without_names(message) for message in chat["messages"]]}
    return encode(json.dumps([shaping.get(name) for name in SHAPING], ensure_ascii=False))


def _without_names(message: Any) -> Any:
    """A message whose parts have no `uuid`: that names media for caches, and no template shows it."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = [{k: v for k, v in p.items() if k != "uuid"} if isinstance(p, dict) else p for p in message["content"]]
    return {**message, "content": parts}


def absorb(state: int, tokens: Iterable[int]) -> int:
    """The "KV" after these tokens: a checksum, 32 bits."""
    for token in tokens:
        state = zlib.crc32(token.to_bytes(4, "little"), state)
    return state


def next_token(state: int, seed: int = 0, *, end_every: int = 0) -> int:
    """The token that follows; one of `end_every` is the end token, none if 0."""
    drawn = zlib.crc32(seed.to_bytes(8, "little", signed=True), state)
    if end_every and (drawn >> 16) % end_every == 0:
        return END
    return WORD_BASE + drawn % WORDS
