"""A record as a flat hash of strings, and back. JSON for what has structure, `at:<state>` for times."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from common.errors import BadRequest, DuetError
from gateway.lifecycle import Record, Speech, State

log = logging.getLogger(__name__)

_TEXT = (
    *("model", "endpoint", "connector", "owner", "decode", "prefill", "unsplit", "client_request_id"),
    *("speech", "talker", "code2wav"),
)
_JSON = ("handoff", "usage", "error", "conditioning")
_FLOATS = ("created_at", "handoff_expires_at")
_INTS = ("attempt",)
_EVENT_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
ENGINES = ("prefill", "decode", "talker", "code2wav")
"""Fields that an event tells, too, where they are set with it."""
AT = "at:"
"""What the name of a timing starts with."""

SETTABLE = frozenset({*_TEXT, *_JSON, *_FLOATS, *_INTS, "timings"}) - {"created_at", "owner"}
"""The fields that a transition may set. What the scripts write themselves is not among them, nor is the owner: its
claim would have to move with it."""


class UnreadableRecord(DuetError):
    """A record that this version of the gateway cannot read: another version wrote it, or somebody else did."""

    code = "unreadable_record"


def to_hash(fields: Mapping[str, Any]) -> dict[str, str]:
    """Record fields as hash fields; None, and speech that is off, are left out.

    Raises ValueError for a field that no record has.
    """
    out: dict[str, str] = {}
    for name, value in fields.items():
        if value is None or value is Speech.OFF:
            continue
        if name in _JSON:
            out[name] = json.dumps(value, separators=(",", ":"))
        elif name == "timings":
            out.update({f"{AT}{mark}": repr(float(at)) for mark, at in value.items()})
        elif name in _FLOATS:
            out[name] = repr(float(value))
        elif name == "stream":
            out[name] = "1" if value else "0"
        elif name in _TEXT or name in _INTS:
            out[name] = str(value)
        else:
            raise ValueError(f"a record has no field {name!r} that can be set")
    return out


def admission_fields(record: Record) -> dict[str, str]:
    """Everything of a new record that admission does not write itself."""
    names = (*_TEXT, *_JSON, *_FLOATS, *_INTS, "stream", "timings")
    return to_hash({name: getattr(record, name) for name in names})


def fingerprint(fields: Mapping[str, str]) -> str:
    """The operation id of an admission: the same record has the same one, so an admission may be repeated."""
    text = json.dumps(fields, sort_keys=True)
    return f"admit:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def changed_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """What a transition sets; None empties a field. Raises ValueError for a field that is not its to set."""
    if foreign := fields.keys() - SETTABLE:
        raise ValueError(f"a transition cannot set {sorted(foreign)}: expected some of {sorted(SETTABLE)}")
    emptied = {name: "null" if name in _JSON else "" for name, value in fields.items() if value is None}
    return {**to_hash(fields), **emptied}


def from_hash(request_id: str, fields: Mapping[str, str]) -> Record:
    """A record from its hash; the operation ids in it are the store's own. Raises UnreadableRecord."""
    try:
        return _record(request_id, fields)
    except (KeyError, ValueError, OverflowError, RecursionError) as e:
        what = f"no field {e}" if isinstance(e, KeyError) else str(e)
        raise UnreadableRecord(f"the record of request {request_id} cannot be read: {what}") from None


def engines_of(fields: Mapping[str, str]) -> dict[str, str]:
    """The engines among an event's fields, or among those that are set with it."""
    return {name: fields[name] for name in ENGINES if fields.get(name)}


def event_id(given: str) -> str:
    """The id of an event row, as a client gave it back. Raises BadRequest unless it is `<number>-<number>`."""
    if not _EVENT_ID.fullmatch(given):
        raise BadRequest(f"event id {given!r}: expected <number>-<number>, as an earlier event had it", param="after")
    return given


def readable(rows: Mapping[str, Mapping[str, str]]) -> list[Record]:
    """The records of these hashes, by id, without those that are gone. One that cannot be read is logged and left out,
    so that it hides no other: while replicas are upgraded, the new ones write what the old ones do not know."""
    found = []
    for request_id, fields in rows.items():
        if not fields:
            continue
        try:
            found.append(from_hash(request_id, fields))
        except UnreadableRecord as e:
            log.warning("%s", e.message)
    return found


def _record(request_id: str, fields: Mapping[str, str]) -> Record:
    return Record(
        id=request_id,
        state=State(fields["state"]),
        version=int(fields["version"]),
        attempt=int(fields["attempt"]),
        model=fields["model"],
        endpoint=fields["endpoint"],
        stream=fields["stream"] == "1",
        connector=fields["connector"],
        owner=fields["owner"],
        decode=fields["decode"],
        created_at=_time(fields["created_at"]),
        updated_at=_time(fields["updated_at"]),
        prefill=fields.get("prefill") or None,
        unsplit=fields.get("unsplit") or None,
        client_request_id=fields.get("client_request_id") or None,
        handoff=_json(fields, "handoff"),
        handoff_expires_at=_time(expiry) if (expiry := fields.get("handoff_expires_at")) else None,
        timings={name.removeprefix(AT): _time(at) for name, at in fields.items() if name.startswith(AT)},
        usage=_json(fields, "usage"),
        error=_json(fields, "error"),
        speech=Speech(fields.get("speech", Speech.OFF)),
        talker=fields.get("talker") or None,
        code2wav=fields.get("code2wav") or None,
        conditioning=_json(fields, "conditioning"),
    )


def _json(fields: Mapping[str, str], name: str) -> Any:
    """None where there is none. Raises ValueError for what is of another sort than `Record` has."""
    value = json.loads(fields[name]) if name in fields else None
    expected = list if name == "conditioning" else dict
    if not isinstance(value, expected | None):
        raise ValueError(f"{name} is a {type(value).__name__}; expected a {expected.__name__}")
    return value


def _time(text: str) -> float:
    """Raises ValueError for what is no number, or not finite."""
    at = float(text)
    if not math.isfinite(at):
        raise ValueError(f"a time is {text!r}; expected epoch seconds")
    return at
