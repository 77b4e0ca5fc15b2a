"""Transitions as a store applies them: chained within their batch, with their fields as strings.

A version number alone does not tell whose it is. If another replica moved a record from version 2 to 3, the owner's
batch `2 -> 3, 3 -> 4` fails at its first step, and its second would fit the other's version 3. So a step also names the
operation that must have made the version it builds on, where that is known: the step before it in the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gateway.lifecycle import LIVE
from gateway.store.codec import changed_fields
from gateway.store.port import Transition

NOTHING: Mapping[str, str] = MappingProxyType({})

EVENTS_KEPT = 256
"""Newest entries of a request's event stream. A request has a handful."""
OPS_KEPT = 64
"""A repeated operation is known as one while at most this many transitions came after it."""

FEED_KEPT = 20_000
"""Newest entries of the feed, about: some minutes of a busy gateway."""

FIRST_LEASE = 10.0
"""Seconds that an owner has from its first claim to its first heartbeat."""


@dataclass(frozen=True, slots=True)
class Step:
    """`builds_on` is the operation that must have made version `expected`; empty if any may have. `at` is in epoch
    seconds, as text that a float reads back exactly."""

    request_id: str
    op_id: str
    expected: int
    builds_on: str
    event: str
    to: str
    ends: bool
    """No step follows a step that ends."""
    at: str
    fields: Mapping[str, str]


def steps(transitions: Iterable[Transition], *, after: Mapping[str, str] = NOTHING) -> list[Step]:
    """The steps of one batch, in order. `after` maps a request to the operation that the batch does before them (its
    admission). Raises ValueError for a field that a transition may not set."""
    latest = dict(after)
    chained = []
    for t in transitions:
        chained.append(
            Step(
                request_id=t.request_id,
                op_id=t.op_id,
                expected=t.expected,
                builds_on=latest.get(t.request_id, ""),
                event=t.event.value,
                to=t.to.value,
                ends=t.to not in LIVE,
                at=repr(t.at),
                fields=changed_fields(t.fields),
            )
        )
        latest[t.request_id] = t.op_id
    return chained
