"""How an answer ended, in each of its choices."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

FAILED_ENDS = frozenset({"error", "abort"})
"""Values of `finish_reason` that end no answer: the engine failed, or gave the request up. Sent with status 200."""


class Choice(msgspec.Struct):
    """All that the gateway reads of a choice: everything else in it is passed over."""

    finish_reason: str | None = None


def failed_end(choices: Iterable[Choice]) -> str | None:
    """The first failed end among them, None if there is none."""
    return next((choice.finish_reason for choice in choices if choice.finish_reason in FAILED_ENDS), None)
