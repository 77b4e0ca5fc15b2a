"""Pipelines by name: which stages there are, who feeds whom, and what leaves for the client.

A deploy file only places the stages; it cannot change this. vLLM-Omni freezes it in the same way, and the split keeps
it: it makes two of the Thinker and leaves the others as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common.engine import Role


class Kind(StrEnum):
    THINKER = "thinker"
    TALKER = "talker"
    CODE2WAV = "code2wav"

    @property
    def role(self) -> Role:
        """Of its engines, where nothing is split."""
        return Role.BOTH if self is Kind.THINKER else Role(self.value)


@dataclass(frozen=True, slots=True)
class Contract:
    """One stage of a pipeline: `source` feeds it (None: the prompt does), `output` is what leaves for the client."""

    kind: Kind
    source: Kind | None = None
    output: str | None = None


PIPELINES: dict[str, tuple[Contract, ...]] = {
    "qwen3_omni_moe": (
        Contract(Kind.THINKER, output="text"),
        Contract(Kind.TALKER, source=Kind.THINKER),
        Contract(Kind.CODE2WAV, source=Kind.TALKER, output="audio"),
    ),
    "qwen3_omni_moe_thinker_only": (Contract(Kind.THINKER, output="text"),),
    "text": (Contract(Kind.THINKER, output="text"),),
}
"""The first two are vLLM-Omni's; `text` is any text model that vLLM serves."""
DEFAULT_PIPELINE = "qwen3_omni_moe"
