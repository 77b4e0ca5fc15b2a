"""What of a row is told: each position once, however often it is computed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

ARGUMENT = "duet_conditioning"
"""Extra argument of a request (`vllm_xargs`): the request part of its stream's key. A request without it costs
nothing."""


@dataclass(frozen=True, slots=True)
class News:
    """Of one row. `begin` is the first position whose id is told, `end` the one behind the last; `computed` is the
    first that was computed now and not told before. `media_at` are positions from `computed` on."""

    begin: int
    computed: int
    end: int
    media_at: tuple[int, ...]


@dataclass(slots=True)
class Telling:
    """One request. `told` is how many positions have been told, `prompt_len` in tokens."""

    key: str
    prompt_len: int
    media: tuple[int, ...]
    told: int = 0

    @classmethod
    def of(cls, key: str, prompt: Sequence[int], media_ids: Collection[int]) -> Telling:
        return cls(key, len(prompt), tuple(at for at, token in enumerate(prompt) if token in media_ids))

    def look(self, computed: int, span: int) -> News | None:
        """What is new in a row of `span` tokens behind `computed` ones; None if all of it was told before, as after a
        preemption. Its rows may begin behind position 0: a cache or another engine had those before."""
        end = computed + span
        if end <= self.told:
            return None
        fresh = max(computed, self.told)
        return News(self.told, fresh, end, tuple(at for at in self.media if fresh <= at < end))
