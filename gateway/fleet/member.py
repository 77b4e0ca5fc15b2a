"""One engine as this gateway sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.engine import Engine
from gateway.routing import Breaker, Candidate


@dataclass(slots=True)
class Member:
    """Mutable: its monitor and the fleet write it, routing gets a frozen `Candidate` of it."""

    engine: Engine
    breaker: Breaker
    source: str = "settings"
    """Who names it."""
    stranger: bool = False
    """No person named it, neither in settings nor by an order: it found its way here."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """What somebody else says that it is, in the names of `/duet/identity`."""
    identity: Mapping[str, Any] | None = None
    """What it says itself there, as of the last look; None where it has no such page, as stock vLLM."""
    up: bool = False
    refused: bool = False
    """It answers, but does not fit the others: `fault` says why."""
    draining: bool = False
    """An operator wants it to get no new request."""
    leaving: bool = False
    """It was removed: it gets no new request, and is forgotten once none of this gateway runs on it."""
    models: Mapping[str, int | None] = field(default_factory=dict)
    """Served name -> `max_model_len` in tokens, from `/v1/models`; kept while the engine is down."""
    speakers: tuple[str, ...] = ()
    """Of a Talker: the voices that it has, the default first."""
    failures: int = 0
    """Failed health checks in a row."""
    successes: int = 0
    """Good health checks in a row."""
    fault: str | None = "not checked yet"
    """Why it is not up; None while it is."""
    checked_at: float | None = None
    """Epoch seconds of the last finished check."""
    local: int = 0
    """Requests that this gateway has in flight on it."""
    shared: int = 0
    """Requests of all replicas, as the store counted them at the last look."""
    local_at_look: int = 0
    """`local` when that look was taken, so that `load` adds what came since and counts nothing twice."""

    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by a new one, when the engine goes out or comes back as another: what it held is gone."""

    def lose(self) -> None:
        self.lost.set()
        self.lost = asyncio.Event()

    @property
    def known(self) -> Mapping[str, Any]:
        """What is known of it: its own word goes for what was declared."""
        return {**self.declared, **(self.identity or {})}

    @property
    def load(self) -> int:
        return max(self.local, self.shared + self.local - self.local_at_look)

    @property
    def open(self) -> bool:
        """Whether it may get new requests, as far as operators are concerned."""
        return not (self.draining or self.leaving)

    def candidate(self, now: float) -> Candidate:
        """`now` is the breaker's time."""
        trusted = self.breaker.lets_through(now)
        return Candidate(self.engine, self.up, self.models, self.load, not self.open, trusted, self.speakers)
