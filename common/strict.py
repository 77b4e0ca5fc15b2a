"""JSON that somebody else wrote, read so that whatever is built of it can be written again."""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str) -> dict[str, Any]:
    """Raises ValueError, in words, for what is no JSON object, is nested too deep, or holds what JSON has no word for:
    a number that is not finite, half of a surrogate pair."""
    try:
        said = json.loads(text)
        json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep; expected a JSON object") from None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ValueError("expected a JSON object of plain text and finite numbers")
    return said
