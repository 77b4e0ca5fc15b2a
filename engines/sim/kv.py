"""KV that a prefill holds for a consumer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Held:
    tokens: int
    state: int
    until: float


@dataclass(slots=True)
class KvShelf:
    """`lease` in seconds; `held` by the request id that the handoff names."""

    lease: float
    held: dict[str, Held] = field(default_factory=dict)
    fetched: int = 0
    expired: int = 0

    def put(self, request_id: str, tokens: int, state: int) -> None:
        self.held[request_id] = Held(tokens, state, time.monotonic() + self.lease)

    def fetch(self, request_id: str) -> Held | None:
        """Gives and frees; None if it is not there, or no more."""
        self.expire()
        found = self.held.pop(request_id, None)
        self.fetched += found is not None
        return found

    def expire(self) -> None:
        now = time.monotonic()
        for request_id in [r for r, h in self.held.items() if h.until <= now]:
            del self.held[request_id]
            self.expired += 1
