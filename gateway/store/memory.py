"""The store in this process's memory: for one gateway alone, with the same meaning as the one in Redis.

A record is kept as the very hash that Redis would hold, so both stores read and write through the same codec, and
nothing that a caller changes later changes what was stored.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from common.clock import Clock
from common.errors import StoreUnavailable
from gateway.lifecycle import LIVE, Record, State
from gateway.store import feed
from gateway.store.codec import AT, admission_fields, engines_of, event_id, fingerprint, from_hash
from gateway.store.port import Applied, EventRow, FeedRow, Load, Order, Orders, Outcome, Transition, Unreadable
from gateway.store.steps import EVENTS_KEPT, FEED_KEPT, FIRST_LEASE, OPS_KEPT, Step, steps


@dataclass(slots=True)
class _Entry:
    fields: dict[str, str]
    events: deque[EventRow]
    ends_at: float

    def applied(self, outcome: Outcome) -> Applied:
        return Applied(outcome, int(self.fields["version"]), State(self.fields["state"]))


class MemoryStore:
    """`available = False` makes every call raise StoreUnavailable, as if the server were away."""

    def __init__(self, clock: Clock, *, live_ttl: float = 86400, record_ttl: float = 3600) -> None:
        """Times to live in seconds."""
        self._clock = clock
        self._live_ttl = live_ttl
        self._record_ttl = record_ttl
        self._entries: dict[str, _Entry] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap of when records may end; a record that got more time has a later entry too."""
        self._order: list[tuple[float, str]] = []
        """When each record was admitted, in order."""
        self._owned: dict[str, set[str]] = {}
        self._leases: dict[str, float] = {}
        self._loads: dict[str, dict[str, float]] = {}
        self._transcripts: dict[str, tuple[str, float]] = {}
        """What a spoken answer said, and until when that is kept."""
        self._listeners: dict[str, set[asyncio.Queue[str]]] = {}
        self._feed: deque[FeedRow] = deque(maxlen=FEED_KEPT)
        self._told = 0
        self._orders: dict[str, dict[Order, str]] | None = None
        self.announcements: dict[str, str | Unreadable | None] = {}
        """What engines say of themselves; set by whoever makes them up."""
        self.available = True

    async def admit(
        self, record: Record, *, transitions: Sequence[Transition] = (), loads: Sequence[Load] = ()
    ) -> Sequence[Applied]:
        self._begin("admit")
        fields = admission_fields(record)
        op_id = fingerprint(fields)
        chain = steps(transitions, after={record.id: op_id})
        self._claim(record.owner, record.id)
        applied = [self._create(record, fields, op_id), *(self._step(step) for step in chain)]
        self._enter(loads)
        self._tell(feed.admitted(record), *map(feed.stepped, chain), *feed.corrections(chain, applied[1:]))
        return applied

    async def apply(
        self,
        transitions: Sequence[Transition],
        *,
        free: Sequence[Load] = (),
        enter: Sequence[Load] = (),
        disown: str | None = None,
    ) -> Sequence[Applied]:
        self._begin("apply")
        chain = steps(transitions)
        applied = [self._step(step) for step in chain]
        for load in free:
            self._loads.get(load.engine, {}).pop(load.request_id, None)
        self._enter(enter)
        self._tell(*map(feed.stepped, chain), *feed.corrections(chain, applied))
        if disown is not None:
            self._disown(disown, chain, applied)
        return applied

    async def get(self, request_id: str) -> Record | None:
        self._begin("get")
        entry = self._entries.get(request_id)
        return None if entry is None else from_hash(request_id, entry.fields)

    async def events(self, request_id: str, *, after: str | None = None) -> Sequence[EventRow]:
        self._begin("events")
        low = (0, 0) if after is None else _position(event_id(after))
        entry = self._entries.get(request_id)
        return [row for row in entry.events if _position(row.id) > low] if entry is not None else []

    async def recent(self, limit: int, *, before: tuple[float, str] | None = None) -> Sequence[Record]:
        self._begin("recent")
        end = len(self._order) if before is None else bisect_left(self._order, before)
        newest = self._order[max(0, end - limit) : end][::-1]
        return [from_hash(id_, self._entries[id_].fields) for _, id_ in newest]

    async def loads(self, engines: Sequence[str]) -> Mapping[str, int]:
        self._begin("loads")
        now = self._clock.now()
        for engine in engines:
            places = self._loads.get(engine, {})
            for request_id in [id_ for id_, ends in places.items() if ends <= now]:
                del places[request_id]
        return {engine: len(self._loads.get(engine, {})) for engine in engines}

    async def feed(self, limit: int, *, after: str | None = None) -> Sequence[FeedRow]:
        self._begin("feed")
        if after is None:
            return list(self._feed)[max(0, len(self._feed) - limit) :]
        low = _position(event_id(after))
        return [row for row in self._feed if _position(row.id) > low][:limit]

    async def feed_has(self, row: str) -> bool:
        self._begin("feed")
        id_ = event_id(row)
        return any(one.id == id_ for one in self._feed)

    async def tell(self, at: float, fields: Mapping[str, str]) -> None:
        self._begin("tell")
        self._tell({**fields, "at": repr(at)})

    async def orders(self) -> Orders | None:
        self._begin("orders")
        if self._orders is None:
            return None
        return {engine: dict(orders) for engine, orders in self._orders.items() if orders}

    async def restore_orders(self, last: Orders) -> None:
        self._begin("orders")
        if self._orders is None:
            self._orders = {engine: dict(orders) for engine, orders in last.items()}

    async def announced(self) -> Mapping[str, str | Unreadable | None]:
        self._begin("registry")
        return dict(self.announcements)

    async def give_order(
        self, engine: str, put: Mapping[Order, str], *, drop: Iterable[Order] = (), last: Orders | None = None
    ) -> None:
        self._begin("order")
        if self._orders is None:
            self._orders = {engine: dict(orders) for engine, orders in (last or {}).items()}
        standing = self._orders.setdefault(engine, {})
        for order in drop:
            standing.pop(order, None)
        standing.update(put)

    async def heartbeat(self, owner: str, lease: float) -> None:
        self._begin("heartbeat")
        self._leases[owner] = self._clock.now() + lease

    async def retire(self, owner: str) -> None:
        await self.heartbeat(owner, 0)
        if not self._owned.get(owner):
            del self._leases[owner]

    async def orphans(self) -> Sequence[Record]:
        self._begin("orphans")
        now = self._clock.now()
        found: list[Record] = []
        for owner in [o for o, ends in self._leases.items() if ends <= now]:
            found += self._orphans_of(owner)
        return found

    async def ask_cancel(self, owner: str, request_id: str) -> int:
        self._begin("cancel")
        listeners = self._listeners.get(owner, set())
        for asked in listeners:
            asked.put_nowait(request_id)
        return len(listeners)

    async def asked_cancels(self, owner: str) -> AsyncIterator[str]:
        self._begin("cancel")
        asked: asyncio.Queue[str] = asyncio.Queue()
        self._listeners.setdefault(owner, set()).add(asked)
        try:
            while True:
                yield await asked.get()
        finally:
            self._listeners[owner].discard(asked)

    async def keep_transcript(self, audio_id: str, text: str, ttl: float) -> None:
        self._begin("keep")
        now = self._clock.now()
        self._transcripts = {id_: kept for id_, kept in self._transcripts.items() if kept[1] > now}
        self._transcripts[audio_id] = (text, now + ttl)

    async def transcripts(self, audio_ids: Sequence[str]) -> Mapping[str, str | None]:
        self._begin("transcripts")
        kept = {id_: self._transcripts.get(id_, ("", 0.0)) for id_ in audio_ids}
        return {id_: text if ends > self._clock.now() else None for id_, (text, ends) in kept.items()}

    async def ping(self) -> float:
        self._begin("ping")
        return 0.0

    async def aclose(self) -> None:
        return None

    def _begin(self, op: str) -> None:
        """What every call does first: refuse if it must, and drop the records whose time is over."""
        if not self.available:
            raise StoreUnavailable(f"the store did not answer ({op}): it was made unavailable")
        now = self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, request_id = heapq.heappop(self._ends)
            entry = self._entries.get(request_id)
            if entry is not None and entry.ends_at <= now:
                del self._entries[request_id]
                del self._order[bisect_left(self._order, (float(entry.fields["created_at"]), request_id))]

    def _create(self, record: Record, fields: Mapping[str, str], op_id: str) -> Applied:
        entry = self._entries.get(record.id)
        if entry is not None:
            return entry.applied(Outcome.DUP if entry.fields.get("op:1") == op_id else Outcome.CONFLICT)
        state, at = record.state.value, repr(record.created_at)
        kept = {"version": "1", "state": state, "updated_at": at, "op:1": op_id, f"{AT}{state}": at, **fields}
        entry = _Entry(kept, deque(maxlen=EVENTS_KEPT), 0.0)
        self._entries[record.id] = entry
        insort(self._order, (record.created_at, record.id))
        self._note(record.id, entry, "admitted", record.created_at, self._live_ttl, fields)
        return entry.applied(Outcome.OK)

    def _step(self, step: Step) -> Applied:
        """What `transition.lua` does."""
        entry = self._entries.get(step.request_id)
        if entry is None:
            return Applied(Outcome.MISSING, 0, None)
        kept, made = entry.fields, step.expected + 1
        if kept.get(f"op:{made}") == step.op_id:
            return entry.applied(Outcome.DUP)
        built_on = kept.get(f"op:{step.expected}")
        if int(kept["version"]) != step.expected or "ended" in kept or step.builds_on not in ("", built_on):
            return entry.applied(Outcome.CONFLICT)
        kept |= {"version": str(made), "state": step.to, "updated_at": step.at, f"op:{made}": step.op_id}
        if step.ends:
            kept["ended"] = step.at
        kept |= step.fields
        kept.setdefault(f"{AT}{step.to}", step.at)
        kept.pop(f"op:{made - OPS_KEPT}", None)
        ttl = self._record_ttl if step.ends else self._live_ttl
        self._note(step.request_id, entry, step.event, float(step.at), ttl, step.fields)
        return entry.applied(Outcome.OK)

    def _note(
        self, request_id: str, entry: _Entry, event: str, at: float, ttl: float, fields: Mapping[str, str]
    ) -> None:
        """An event, and the time that the record now has."""
        id_, state = f"0-{entry.fields['version']}", State(entry.fields["state"])
        entry.events.append(EventRow(id_, at, event, state, engines_of(fields)))
        entry.ends_at = self._clock.now() + ttl
        heapq.heappush(self._ends, (entry.ends_at, request_id))

    def _tell(self, *rows: Mapping[str, str]) -> None:
        for row in rows:
            self._told += 1
            self._feed.append(FeedRow(f"0-{self._told}", *feed.parted(f"0-{self._told}", row)))

    def _enter(self, loads: Sequence[Load]) -> None:
        for load in loads:
            self._loads.setdefault(load.engine, {})[load.request_id] = load.expires_at

    def _claim(self, owner: str, request_id: str) -> None:
        self._owned.setdefault(owner, set()).add(request_id)
        self._leases.setdefault(owner, self._clock.now() + FIRST_LEASE)

    def _disown(self, owner: str, chain: Sequence[Step], applied: Sequence[Applied]) -> None:
        """Drops the claims of requests that ended; one that lives on is still somebody's to close."""
        for step, one in zip(chain, applied, strict=True):
            if step.ends and one.state not in LIVE:
                self._owned.get(owner, set()).discard(step.request_id)

    def _orphans_of(self, owner: str) -> list[Record]:
        entries = {id_: self._entries.get(id_) for id_ in sorted(self._owned.get(owner, ()))}
        records = [from_hash(id_, entry.fields) for id_, entry in entries.items() if entry is not None]
        live = [r for r in records if r.live and r.owner == owner]
        self._owned[owner] = {r.id for r in live}
        if not live:
            del self._owned[owner], self._leases[owner]
        return live


def _position(id_: str) -> tuple[int, int]:
    ms, _, sequence = id_.partition("-")
    return int(ms), int(sequence)
