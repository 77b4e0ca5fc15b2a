"""A record as a flat hash of strings, and back. JSON for what has structure, `at:<state>` for times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.lifecycle import Record, State

_TEXT = ("model", "endpoint", "connector", "owner", "decode", "prefill", "unsplit", "client_request_id")
_JSON = ("handoff", "usage", "error")
_FLOATS = ("created_at", "handoff_expires_at")
_INTS = ("attempt",)
_AT = "at:"

SETTABLE = frozenset({*_TEXT, *_JSON, *_FLOATS, *_INTS, "timings"}) - {"created_at"}
"""The fields that a transition may set; what the scripts write themselves is not among them."""


def to_hash(fields: Mapping[str, Any]) -> dict[str, str]:
    """Record fields as hash fields; None is left out. Raises ValueError for a field that no record has."""
    out: dict[str, str] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in _JSON:
            out[name] = json.dumps(value, separators=(",", ":"))
        elif name == "timings":
            out.update({f"{_AT}{mark}": repr(float(at)) for mark, at in value.items()})
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
    """Everything of a new record that `admit.lua` does not write itself."""
    names = (*_TEXT, *_JSON, *_FLOATS, *_INTS, "stream", "timings")
    return to_hash({name: getattr(record, name) for name in names})


def from_hash(request_id: str, fields: Mapping[str, str]) -> Record:
    """A record from its hash; the operation ids in it are the store's own."""
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
        created_at=float(fields["created_at"]),
        updated_at=float(fields["updated_at"]),
        prefill=fields.get("prefill"),
        unsplit=fields.get("unsplit"),
        client_request_id=fields.get("client_request_id"),
        handoff=_json(fields, "handoff"),
        handoff_expires_at=float(fields["handoff_expires_at"]) if "handoff_expires_at" in fields else None,
        timings={name.removeprefix(_AT): float(at) for name, at in fields.items() if name.startswith(_AT)},
        usage=_json(fields, "usage"),
        error=_json(fields, "error"),
    )


def _json(fields: Mapping[str, str], name: str) -> Any:
    return json.loads(fields[name]) if name in fields else None
