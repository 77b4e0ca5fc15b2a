"""Client bodies, and ways to look into what became of them."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from hypothesis import strategies as st

from gateway.wire import ClientRequest, parse
from gateway.wire.request import CHAT, COMPLETIONS

MESSAGES = [{"role": "user", "content": "Say it."}]
PROMPTS: dict[str, dict[str, Any]] = {CHAT: {"messages": MESSAGES}, COMPLETIONS: {"prompt": "Say it."}}
ENDPOINTS = sorted(PROMPTS)


def body_of(endpoint: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", **PROMPTS[endpoint], **fields}


def request_of(endpoint: str, **fields: Any) -> ClientRequest:
    return parse(endpoint, json.dumps(body_of(endpoint, **fields)).encode())


def chat(**fields: Any) -> ClientRequest:
    return request_of(CHAT, **fields)


def completion(**fields: Any) -> ClientRequest:
    return request_of(COMPLETIONS, **fields)


def raw_fields(body: bytes) -> dict[str, bytes]:
    """Top-level fields as the bytes that stand there."""
    return {name: bytes(raw) for name, raw in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items()}


def table_names(doc: str | None, column: int = 0) -> set[str]:
    """What stands in backquotes in a column of the tables of a docstring."""
    assert doc is not None
    rows = [line.strip().strip("|").split("|") for line in doc.splitlines() if line.strip().startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
