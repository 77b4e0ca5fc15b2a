"""Records and engines as JSON for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.fleet import Member
from gateway.lifecycle import LIVE, Record
from gateway.store.port import EventRow

SECRET_WORDS = ("key", "password", "secret", "token_ids")
"""A handoff's field whose name has one of these is not shown."""


def member_view(member: Member) -> dict[str, Any]:
    return {
        "id": member.engine.id,
        "url": member.engine.url,
        "role": member.engine.role.value,
        "up": member.up,
        "fault": member.fault,
        "draining": member.draining,
        "models": dict(member.models),
        "load": member.load,
        "checked_at": member.checked_at,
    }


def record_summary(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "client_request_id": record.client_request_id,
        "state": record.state.value,
        "model": record.model,
        "endpoint": record.endpoint,
        "stream": record.stream,
        "attempt": record.attempt,
        "prefill": record.prefill,
        "decode": record.decode,
        "unsplit": record.unsplit,
        "speech": record.speech.value,
        "talker": record.talker,
        "code2wav": record.code2wav,
        "replica": record.owner,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "error": record.error,
    }


def record_view(record: Record, events: Sequence[EventRow], *, now: float) -> dict[str, Any]:
    """`phases` are seconds; the phase that still runs is counted up to `now`, in epoch seconds."""
    return {
        **record_summary(record),
        "version": record.version,
        "connector": record.connector,
        "handoff": handoff_view(record),
        "conditioning": record.conditioning,
        "usage": record.usage,
        "timings": dict(record.timings),
        "phases": phases(record, now),
        "events": [
            {"id": e.id, "at": e.at, "event": e.event, "state": e.state.value, "engines": dict(e.engines)}
            for e in events
        ],
    }


def phases(record: Record, now: float) -> dict[str, float]:
    """How long each phase took."""
    t = record.timings
    end = now if record.live else record.updated_at
    marks = sorted((at, name) for name, at in t.items() if name in _PHASES)
    spans: dict[str, float] = {}
    for i, (at, name) in enumerate(marks):
        spans[name] = (marks[i + 1][0] if i + 1 < len(marks) else end) - at
    spans["total"] = end - record.created_at
    if "first_byte" in t:
        spans["time_to_first_byte"] = t["first_byte"] - record.created_at
    if "first_audio" in t:
        spans["time_to_first_audio"] = t["first_audio"] - record.created_at
    return {name: round(max(0.0, seconds), 6) for name, seconds in spans.items()}


_PHASES = frozenset(state.value for state in LIVE)


def handoff_view(record: Record) -> dict[str, Any] | None:
    """The handoff without secrets: block lists as counts, nothing whose name speaks of a key or of the prompt."""
    if record.handoff is None:
        return None
    return {"params": summed(record.handoff), "expires_at": record.handoff_expires_at}


def summed(value: Any) -> Any:
    """A list as its size (of all its lists, if it is made of lists); a mapping field by field, without secrets;
    else itself."""
    if isinstance(value, list):
        inner = [v for v in value if isinstance(v, list)]
        return {"lists": len(inner), "entries": sum(map(len, inner))} if inner else {"entries": len(value)}
    if isinstance(value, Mapping):
        return {name: summed(inner) for name, inner in value.items() if not _is_secret(name)}
    return value


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in SECRET_WORDS)
