"""Usage as an unsplit engine would have it: everything is decode's, but what was cached.

Decode finds the whole prompt in its cache, because it was handed over; what of the prompt was in a cache before only
prefill knows. (vLLM 0.32 passes prefill's figure on itself where the handoff carries it.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Usage = Mapping[str, Any]


def with_cached_tokens(usage: Usage, cached: int | None) -> Usage | None:
    """The usage with prefill's `cached_tokens`; None if it is right as it is, or prefill told nothing."""
    if cached is None:
        return None
    details = usage.get("prompt_tokens_details")
    kept = details if isinstance(details, Mapping) else {}
    if kept.get("cached_tokens") == cached:
        return None
    return {**usage, "prompt_tokens_details": {**kept, "cached_tokens": cached}}


def with_audio_tokens(usage: Usage, frames: int) -> Usage:
    """The usage with the codec frames of the answer's sound, as OpenAI counts them: a part of the completion."""
    details = usage.get("completion_tokens_details")
    text, total = _count(usage.get("completion_tokens")), _count(usage.get("total_tokens"))
    told = {
        **(details if isinstance(details, Mapping) else {}),
        "audio_tokens": frames,
        "text_tokens": text,
    }
    return {
        **usage,
        "completion_tokens": text + frames,
        "total_tokens": total + frames,
        "completion_tokens_details": told,
    }


def _count(told: object) -> int:
    """0 where an engine tells no number."""
    return told if isinstance(told, int) and not isinstance(told, bool) else 0
