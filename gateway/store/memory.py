"""The store in this process's memory: for one gateway alone, with the same meaning as the one in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.clock import Clock
from common.errors import StoreUnavailable
from gateway.lifecycle import LIVE, Record
from gateway.store.codec import SETTABLE
from gateway.store.port import Applied, EventRow, Load, Outcome, Transition


@dataclass(slots=True)
class _Entry:
    record: Record
    expires_at: float
    ops: list[str]
    """The operation that made each version."""
    events: list[EventRow] = field(default_factory=list)


class MemoryStore:
    """`available = False` makes every call raise StoreUnavailable, as if the server were away."""

    def __init__(self, clock: Clock, *, live_ttl: float = 86400, record_ttl: float = 3600) -> None:
        self._clock = clock
        self._live_ttl = live_ttl
        self._record_ttl = record_ttl
        self._entries: dict[str, _Entry] = {}
        self._owned: dict[str, set[str]] = {}
        self._leases: dict[str, float] = {}
        self._loads: dict[str, dict[str, float]] = {}
        self.available = True

    async def admit(
        self, record: Record, *, transitions: Sequence[Transition] = (), loads: Sequence[Load] = ()
    ) -> Sequence[Applied]:
        self._check("admit")
        applied = [self._create(record), *(self._apply(t) for t in transitions)]
        for load in loads:
            self._loads.setdefault(load.engine, {})[load.request_id] = load.expires_at
        self._owned.setdefault(record.owner, set()).add(record.id)
        return applied

    async def apply(
        self, transitions: Sequence[Transition], *, free: Sequence[Load] = (), disown: str | None = None
    ) -> Sequence[Applied]:
        self._check("apply")
        applied = [self._apply(t) for t in transitions]
        for load in free:
            self._loads.get(load.engine, {}).pop(load.request_id, None)
        if disown is not None:
            self._owned.get(disown, set()).difference_update(t.request_id for t in transitions if t.to not in LIVE)
        return applied

    async def get(self, request_id: str) -> Record | None:
        self._check("get")
        entry = self._entry(request_id)
        return None if entry is None else entry.record

    async def events(self, request_id: str, *, after: str | None = None) -> Sequence[EventRow]:
        self._check("events")
        entry = self._entry(request_id)
        rows = entry.events if entry is not None else []
        return [row for row in rows if after is None or _order(row.id) > _order(after)]

    async def recent(self, limit: int) -> Sequence[Record]:
        self._check("recent")
        entries = [e for id_ in list(self._entries) if (e := self._entry(id_)) is not None]
        records = sorted((e.record for e in entries), key=lambda r: (r.created_at, r.id), reverse=True)
        return records[:limit]

    async def loads(self, engines: Sequence[str]) -> Mapping[str, int]:
        self._check("loads")
        now = self._clock.now()
        return {e: sum(1 for ends in self._loads.get(e, {}).values() if ends > now) for e in engines}

    async def heartbeat(self, owner: str, lease: float) -> None:
        self._check("heartbeat")
        self._leases[owner] = self._clock.now() + lease

    async def retire(self, owner: str) -> None:
        await self.heartbeat(owner, 0)
        if not self._owned.get(owner):
            self._leases.pop(owner, None)

    async def orphans(self) -> Sequence[Record]:
        self._check("orphans")
        now = self._clock.now()
        found: list[Record] = []
        for owner in [o for o, ends in self._leases.items() if ends <= now]:
            owned = self._owned.setdefault(owner, set())
            entries = {id_: self._entry(id_) for id_ in sorted(owned)}
            live = [e.record for e in entries.values() if e is not None and e.record.live and e.record.owner == owner]
            owned.intersection_update({r.id for r in live})
            found += live
            if not owned:
                del self._owned[owner], self._leases[owner]
        return found

    async def ping(self) -> float:
        self._check("ping")
        return 0.0

    async def aclose(self) -> None:
        return None

    def _check(self, op: str) -> None:
        if not self.available:
            raise StoreUnavailable(f"the store did not answer ({op}): it was made unavailable")

    def _entry(self, request_id: str) -> _Entry | None:
        entry = self._entries.get(request_id)
        if entry is not None and entry.expires_at <= self._clock.now():
            del self._entries[request_id]
            return None
        return entry

    def _create(self, record: Record) -> Applied:
        op_id = f"admit:{record.owner}"
        entry = self._entry(record.id)
        if entry is not None:
            outcome = Outcome.DUP if entry.ops[0] == op_id else Outcome.CONFLICT
            return Applied(outcome, entry.record.version, entry.record.state)
        kept = replace(
            record,
            version=1,
            updated_at=record.created_at,
            timings={**record.timings, record.state.value: record.created_at},
        )
        entry = _Entry(kept, self._clock.now() + self._live_ttl, [op_id])
        entry.events.append(EventRow("0-1", record.created_at, "admitted", record.state))
        self._entries[record.id] = entry
        return Applied(Outcome.OK, 1, record.state)

    def _apply(self, t: Transition) -> Applied:
        unknown = set(t.fields) - SETTABLE
        if unknown:
            raise ValueError(f"a record has no field {unknown.pop()!r} that can be set")
        entry = self._entry(t.request_id)
        if entry is None:
            return Applied(Outcome.MISSING, 0, None)
        record = entry.record
        if t.expected < len(entry.ops) and entry.ops[t.expected] == t.op_id:
            return Applied(Outcome.DUP, record.version, record.state)
        if record.version != t.expected:
            return Applied(Outcome.CONFLICT, record.version, record.state)
        fields = {name: value for name, value in t.fields.items() if value is not None and name != "timings"}
        timings = {**record.timings, t.to.value: t.at, **t.fields.get("timings", {})}
        entry.record = replace(
            record, state=t.to, version=record.version + 1, updated_at=t.at, timings=timings, **fields
        )
        entry.ops.append(t.op_id)
        entry.events.append(EventRow(f"0-{len(entry.ops)}", t.at, t.event.value, t.to))
        entry.expires_at = self._clock.now() + (self._live_ttl if t.to in LIVE else self._record_ttl)
        return Applied(Outcome.OK, entry.record.version, t.to)


def _order(id_: str) -> tuple[int, int]:
    ms, _, sequence = id_.partition("-")
    return int(ms), int(sequence)
