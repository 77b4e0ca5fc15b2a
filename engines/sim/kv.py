"""KV that a prefill holds for a consumer, until it is fetched, released or its lease is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

FREED = 0xDEAD_BEEF
"""What a read of blocks that are free again finds: real NIXL reads them without a word, whatever is in them by now."""


@dataclass(frozen=True, slots=True)
class Held:
    """`tokens` is how many the KV covers, `state` what it is, `until` a time of the shelf's clock."""

    tokens: int
    state: int
    until: float


@dataclass(slots=True)
class KvShelf:
    """`lease` in seconds; `held` by the request id that the handoff names. The rest counts how they went."""

    lease: float
    clock: Callable[[], float] = time.monotonic
    held: dict[str, Held] = field(default_factory=dict)
    fetched: int = 0
    released: int = 0
    expired: int = 0

    def put(self, request_id: str, tokens: int, state: int) -> None:
        self.held[request_id] = Held(tokens, state, self.clock() + self.lease)

    def fetch(self, request_id: str) -> int:
        """The state, and frees it; `FREED` if it is not there, or no more."""
        self.expire()
        found = self.held.pop(request_id, None)
        if found is None:
            return FREED
        self.fetched += 1
        return found.state

    def release(self, request_id: str) -> None:
        """Frees what nobody will fetch."""
        self.released += self.held.pop(request_id, None) is not None

    def expire(self) -> None:
        now = self.clock()
        for request_id in [r for r, h in self.held.items() if h.until <= now]:
            del self.held[request_id]
            self.expired += 1
