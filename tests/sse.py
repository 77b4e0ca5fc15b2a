"""Server-sent events as clients read them."""

from __future__ import annotations

import json
from typing import Any


def events_of(text: str) -> list[dict[str, Any]]:
    """The JSON events of a whole stream, without `[DONE]`. Asserts that there is nothing else in it."""
    events = []
    for block in text.split("\n\n"):
        if not block:
            continue
        assert block.startswith("data: "), block
        data = block.removeprefix("data: ")
        if data != "[DONE]":
            events.append(json.loads(data))
    return events
