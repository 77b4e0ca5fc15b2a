"""The feed as rows: what each write tells, and what it tells when it did not apply after all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from gateway.lifecycle import Record
from gateway.store.port import Applied, Outcome
from gateway.store.steps import Step

OVERTAKEN = "overtaken"
"""The event of a row that says what a request's state really is: the row before it said what its writer believed."""

_VERSION = re.compile(r"[0-9]{1,18}")


def admitted(record: Record) -> dict[str, str]:
    return {
        "event": "admitted",
        "request": record.id,
        "state": record.state.value,
        "version": str(record.version),
        "replica": record.owner,
        "at": repr(record.created_at),
    }


def stepped(step: Step) -> dict[str, str]:
    return {
        "event": step.event,
        "request": step.request_id,
        "state": step.to,
        "version": str(step.expected + 1),
        "at": step.at,
    }


def corrections(chain: Sequence[Step], applied: Sequence[Applied]) -> Iterator[dict[str, str]]:
    """One row for each step that somebody else had overtaken. A row goes out with the write that it tells of, in the
    same round trip, so it cannot know how that ends."""
    for step, one in zip(chain, applied, strict=True):
        if one.outcome is Outcome.CONFLICT and one.state is not None:
            state, version = one.state.value, str(one.version)
            yield {**stepped(step), "event": OVERTAKEN, "state": state, "version": version}


def parted(id_: str, fields: Mapping[str, str]) -> tuple[float, dict[str, str]]:
    """A row's time, and the rest. A row that somebody else wrote hides no other: without a time of its own it has that
    of its id, and a version that is none is left out."""
    rest = dict(fields)
    at = _number(rest.pop("at", ""))
    if not _VERSION.fullmatch(rest.get("version", "0")):
        del rest["version"]
    return int(id_.partition("-")[0]) / 1000 if at is None else at, rest


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
