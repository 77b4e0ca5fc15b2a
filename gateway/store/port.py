"""What a store must do. `memory.py` and `redis.py` do it, under one suite of tests.

One call of `admit` or `apply` is one round trip. Nothing here is called per token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gateway.lifecycle import Event, Record, State


class Outcome(StrEnum):
    OK = "ok"
    DUP = "dup"
    """This operation id was applied before: a retry, and nothing was done again."""
    CONFLICT = "conflict"
    """Somebody else moved the record: it is not at the expected version, it has ended, or its version was not made by
    the step before this one in the batch."""
    MISSING = "missing"
    """No such record: it was never admitted, or its time to live is over."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one request, already decided by the lifecycle table.

    It is applied only if the record is at version `expected`, which it then raises by one. `fields` are further
    record fields to set, named as in `Record` (None empties one); `timings` entries are merged, not replaced.
    """

    request_id: str
    op_id: str
    expected: int
    event: Event
    to: State
    at: float
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """`version` and `state` are the record's after the call; 0 and None for MISSING."""

    outcome: Outcome
    version: int
    state: State | None


@dataclass(frozen=True, slots=True)
class Load:
    """One request's place in one engine's in-flight count. It ends by itself at `expires_at` (epoch seconds)."""

    engine: str
    request_id: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One entry of a request's event stream; `id` grows and can be given as `after`."""

    id: str
    at: float
    event: str
    """An `Event`, or `admitted` for the first one."""
    state: State
    engines: Mapping[str, str] = field(default_factory=dict)
    """Engines that were chosen with it: `prefill`, `decode`, `talker`, `code2wav` -> `Engine.id`."""


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One entry of the feed: what happened to any request or engine. `id` grows and can be given as `after`.

    `fields` has `event` and, where it is about a request, `request`, `state` and `version`; where about an engine,
    `engine` and `replica`. A write that was repeated is told twice, with the same version.
    """

    id: str
    at: float
    fields: Mapping[str, str]


class Order(StrEnum):
    """What an operator may say of an engine, for all replicas."""

    DRAIN = "drain"
    """It gets no new request."""
    ADD = "add"
    """It belongs to the fleet, though no setting names it; the order's text says how it is reached."""
    DECLARE = "declare"
    """What somebody says the engine is, in the names of `/duet/identity`, as JSON."""
    REMOVE = "remove"
    """It does not, though settings name it."""


Orders = Mapping[str, Mapping[Order, str]]
"""Engine -> the orders that stand for it, each with its text."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands in the place of a value that somebody else wrote and that is of another type."""

    why: str


class Store(Protocol):
    async def admit(
        self, record: Record, *, transitions: Sequence[Transition] = (), loads: Sequence[Load] = ()
    ) -> Sequence[Applied]:
        """Writes a new record (version 1), its owner's claim, its loads and first transitions in one round trip.

        Returns one Applied for the admission (CONFLICT if the id is taken by another) and one a transition.
        The record lives at most `live_ttl` seconds while it is live and `record_ttl` after it ended.
        """
        ...

    async def apply(
        self,
        transitions: Sequence[Transition],
        *,
        free: Sequence[Load] = (),
        enter: Sequence[Load] = (),
        disown: str | None = None,
    ) -> Sequence[Applied]:
        """Applies transitions in order, takes `free` out of the in-flight counts and puts `enter` into them, in this
        order and in one round trip.

        After a conflict nothing more of that request's batch applies, and nothing ever follows a terminal state.
        `disown` is the owner whose claim ends with these transitions, for those of them that lead to a terminal
        state. A request that did not end after all stays claimed.
        """
        ...

    async def get(self, request_id: str) -> Record | None: ...

    async def events(self, request_id: str, *, after: str | None = None) -> Sequence[EventRow]: ...

    async def recent(self, limit: int, *, before: tuple[float, str] | None = None) -> Sequence[Record]:
        """The newest admitted records that still exist, newest first; `before` is `created_at` and id of one of them:
        those that follow it."""
        ...

    async def feed(self, limit: int, *, after: str | None = None) -> Sequence[FeedRow]:
        """What happened, oldest first: the newest `limit` rows, or the first `limit` that follow `after`. Raises
        BadRequest for an `after` that is no row's id."""
        ...

    async def feed_has(self, row: str) -> bool:
        """Whether a row is still kept; if not, some that followed it may be gone too. Raises BadRequest."""
        ...

    async def tell(self, at: float, fields: Mapping[str, str]) -> None:
        """Adds a row to the feed. Transitions are told by `admit` and `apply` themselves."""
        ...

    async def orders(self) -> Orders | None:
        """What stands; None where no order was ever given, or all are lost. They are forgotten `live_ttl` seconds after
        nobody asked any more."""
        ...

    async def restore_orders(self, last: Orders) -> None:
        """Writes the orders that stood last, if the store has lost them: as a whole, or not at all where somebody was
        first with that, or gave an order."""
        ...

    async def give_order(
        self,
        engine: str,
        put: Mapping[Order, str],
        *,
        drop: Iterable[Order] = (),
        last: Orders | None = None,
    ) -> None:
        """Orders from now on, and those that are over; in one round trip, behind a `restore_orders` of `last`."""
        ...

    async def announced(self) -> Mapping[str, str | Unreadable | None]:
        """Engines that announced themselves (`common/registry`): id -> the announcement, None where its time is
        over."""
        ...

    async def loads(self, engines: Sequence[str]) -> Mapping[str, int]:
        """How many requests of all replicas are in flight on each of these engines, without those whose count cannot
        be read."""
        ...

    async def heartbeat(self, owner: str, lease: float) -> None:
        """Renews an owner's lease for `lease` seconds from now, by the store's own clock."""
        ...

    async def retire(self, owner: str) -> None:
        """Ends an owner's lease at once (a clean shutdown)."""
        ...

    async def orphans(self) -> Sequence[Record]:
        """Live records of owners whose lease is over. Claims of records that ended are dropped on the way, and
        owners that have no more claims are forgotten."""
        ...

    async def ask_cancel(self, owner: str, request_id: str) -> int:
        """Tells the replica `owner` that somebody wants this request ended. Returns how many listened: 0 if that
        replica is gone, or away from the store for now."""
        ...

    def asked_cancels(self, owner: str) -> AsyncIterator[str]:
        """Ids of requests whose end was asked of `owner`, as they come, until closed. Raises StoreUnavailable when the
        store goes away: what is asked meanwhile is not heard, and whoever asks is told so."""
        ...

    async def keep_transcript(self, audio_id: str, text: str, ttl: float) -> None:
        """What a spoken answer said, for `ttl` seconds."""
        ...

    async def transcripts(self, audio_ids: Sequence[str]) -> Mapping[str, str | None]:
        """What these answers said; None for one that is not kept, or not any more."""
        ...

    async def ping(self) -> float:
        """Round-trip time in seconds."""
        ...

    async def aclose(self) -> None: ...
