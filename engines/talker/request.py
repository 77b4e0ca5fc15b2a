"""What one speech request carries through vLLM, among its sampling parameters' extra arguments.

`duet_speech` is what the Talker's scheduler and model read. vLLM's own sampling parameters are for group 0; groups 1
to 15 have theirs here, and their seed is `tts_local_seed`, where the runner looks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engines.runner.mtp import SEED

ARGUMENT = "duet_speech"


@dataclass(frozen=True, slots=True)
class Residual:
    """How groups 1 to 15 are sampled. Greedy at temperature 0; `top_k` 0 takes all."""

    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.8


GREEDY = Residual(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Speech:
    """`conditioning` are references to the Thinker's streams. `codes` is the request part of the key under which the
    codes are published; None publishes none."""

    conditioning: tuple[str, ...]
    speaker: str
    codes: str | None = None
    residual: Residual = Residual()

    @classmethod
    def of(cls, extra_args: Mapping[str, Any] | None) -> Speech:
        """Raises ValueError for a request that is none of ours: vLLM's own endpoints are open too."""
        found = (extra_args or {}).get(ARGUMENT)
        if not isinstance(found, Mapping):
            raise ValueError(f"extra argument {ARGUMENT} is {found!r}: speech is asked for at POST /v1/speech only")
        return cls(
            conditioning=tuple(found["conditioning"]),
            speaker=found["speaker"],
            codes=found.get("codes"),
            residual=Residual(**found["residual"]),
        )

    def extra_args(self, seed: int | None) -> dict[str, Any]:
        told = {**asdict(self), "conditioning": list(self.conditioning)}
        return {ARGUMENT: told} | ({} if seed is None else {SEED: seed})
