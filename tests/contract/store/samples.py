"""Records and transitions as a gateway would write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from common.ids import RandomIds
from gateway.lifecycle import Event, Record, State, step
from gateway.store.port import Load, Transition

IDS = RandomIds()
_SECONDS = count(1)

PREFILL, DECODE = "10.0.0.1:8100", "[fd00::2]:8200"
START = 1_700_000_000.25
"""When every sample was admitted; a fraction that a float holds exactly."""


def new_record(**over: Any) -> Record:
    fields: dict[str, Any] = {
        "id": IDS.request_id(),
        "state": State.ACCEPTED,
        "version": 1,
        "attempt": 1,
        "model": "tiny",
        "endpoint": "/v1/chat/completions",
        "stream": True,
        "connector": "nixl",
        "owner": "replica-a",
        "prefill": PREFILL,
        "decode": DECODE,
        "created_at": START,
        "updated_at": START,
        "timings": {"accepted": START},
    }
    return Record(**{**fields, **over})


def places(record: Record, *, until: float) -> list[Load]:
    return [Load(engine, record.id, until) for engine in (record.prefill, record.decode) if engine is not None]


class Author:
    """Writes one request's transitions by the table, as the replica that runs it would."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = record.state
        self.version = record.version

    def next(self, event: Event, **fields: Any) -> Transition:
        """Raises IllegalTransition, and stays where it is then."""
        to, _ = step(self.state, event)
        transition = Transition(
            request_id=self.record.id,
            op_id=IDS.op_id(),
            expected=self.version,
            event=event,
            to=to,
            at=START + next(_SECONDS),
            fields=fields,
        )
        self.state, self.version = to, self.version + 1
        return transition

    def all(self, *events: Event) -> Sequence[Transition]:
        return [self.next(event) for event in events]


def expiry(record: Record) -> Transition:
    """What another replica's reaper would write."""
    return Author(record).next(Event.EXPIRED)


def other(transition: Transition) -> Transition:
    """The same step, written by somebody else."""
    return replace(transition, op_id=IDS.op_id())
