"""How much goes over each edge of the topology: read off the newest requests of all replicas, which Redis has anyway.

Nothing is counted on the way of a request. So every replica shows the same, also right after it started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from common.clock import Clock
from gateway.lifecycle import Record, State
from gateway.store.port import Store

WINDOW = 60.0
"""Seconds that rates are over."""
SAMPLE = 500
"""Newest requests that are looked at. Where more came within WINDOW, the rates are over the time of these."""
FRESH = 1.0
"""Seconds for which one look stands, however many ask."""
GATEWAY = "gateway"
"""The node that every request comes from."""
KINDS = ("prefill", "decode", "kv", "conditioning", "codes")
"""What goes over an edge: a prompt, all of an unsplit request, KV, rows for the Talker, codec frames."""


@dataclass(slots=True)
class Edge:
    """Requests over one edge, within the window. `seconds` has how long each took that ended, where that is known."""

    source: str
    target: str
    kind: str
    """One of KINDS."""
    requests: int = 0
    running: int = 0
    failed: int = 0
    retried: int = 0
    """Requests that needed further attempts; the edge is that of the last one."""
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counted:
    edges: Sequence[Edge]
    window: float
    """Seconds that the counts are over."""


NOTHING = Counted((), WINDOW)


class Traffic:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last: tuple[float, Counted] | None = None

    async def count(self) -> Counted:
        """Raises StoreUnavailable."""
        if self._last is not None and self._clock.monotonic() - self._last[0] < FRESH:
            return self._last[1]
        records = await self._store.recent(SAMPLE)
        counted = count(records, self._clock.now())
        self._last = (self._clock.monotonic(), counted)
        return counted


def count(records: Sequence[Record], now: float) -> Counted:
    """The edges that requests took which were admitted within the window, or run still; `records` newest first."""
    whole = len(records) < SAMPLE or now - records[-1].created_at >= WINDOW
    window = WINDOW if whole else max(now - records[-1].created_at, 0.001)
    edges: dict[tuple[str, str], Edge] = {}
    for record in records:
        if not record.live and now - record.created_at > window:
            continue
        for source, target, kind, took in _edges_of(record):
            edge = edges.setdefault((source, target), Edge(source, target, kind))
            edge.requests += 1
            edge.running += record.live
            edge.failed += record.state in (State.FAILED, State.EXPIRED)
            edge.retried += record.attempt > 1
            if took is not None and took >= 0:
                edge.seconds.append(took)
    return Counted(list(edges.values()), window)


def _edges_of(record: Record) -> Iterator[tuple[str, str, str, float | None]]:
    """Source, target, what goes over it, and for how long it did."""
    if record.prefill is not None:
        yield GATEWAY, record.prefill, "prefill", _between(record, State.PREFILLING, State.PREFILLED)
        yield record.prefill, record.decode, "kv", _handed_over(record)
    else:
        yield GATEWAY, record.decode, "decode", _between(record, State.DECODING, State.FINISHED)
    if record.talker is not None:
        yield record.decode, record.talker, "conditioning", None
        if record.code2wav is not None:
            yield record.talker, record.code2wav, "codes", None


def _handed_over(record: Record) -> float | None:
    """From prefill's reply to decode's first bytes. A whole answer's first byte tells nothing of it."""
    begin, end = record.timings.get(State.PREFILLED.value), record.timings.get("first_byte")
    return end - begin if record.stream and begin is not None and end is not None else None


def _between(record: Record, since: State, until: State) -> float | None:
    begin, end = record.timings.get(since.value), record.timings.get(until.value)
    return end - begin if begin is not None and end is not None else None
