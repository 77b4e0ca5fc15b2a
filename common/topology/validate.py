"""A document held against the schema: pydantic's errors as faults with line, path and the nearest known key."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from common.topology.document import Document
from common.topology.fault import Fault, Path, TopologyInvalid
from common.topology.names import nearest
from common.topology.schema import File, keys_of, schema_at

_REMOVED = {
    "stage_args": "use stages: vLLM-Omni has removed the older schema too",
    "base_config": "copy what it adds",
}
"""Keys that vLLM-Omni's files have or had, and Duet does not read."""
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "scalar_type": "text, a number, true or false",
}
_SHOW_AT_MOST = 60


def validate(document: Document) -> None:
    """Raises TopologyInvalid with everything in the document that the schema does not allow."""
    try:
        File.model_validate(document.values)
    except ValidationError as e:
        raise TopologyInvalid([_fault(document, error) for error in e.errors(include_url=False)]) from None


def _fault(document: Document, error: ErrorDetails) -> Fault:
    path: Path = tuple(step for step in error["loc"] if step != "[key]")
    match error["type"]:
        case "extra_forbidden" | "unknown_key":
            return _unknown(document, path, error)
        case "missing":
            return document.fault("key.missing", path, "is missing", "add it")
        case "twice":
            return document.fault("key.twice", path, error["msg"], "remove one of the two")
    return document.fault("value", path, f"expected {_expected(path, error)}, got {shown(error['input'])}")


def _unknown(document: Document, path: Path, error: ErrorDetails) -> Fault:
    name = str(path[-1])
    if name in _REMOVED and len(path) == 1:
        return document.fault("key.unknown", path, f"{name} is not read", _REMOVED[name])
    schema = schema_at(path[:-1])
    known = keys_of(schema) if schema is not None else frozenset(error.get("ctx", {}).get("known", ()))
    near = nearest(name, known)
    if near is not None:
        return document.fault("key.unknown", path, "unknown key", f"did you mean {near}?")
    few = f": {', '.join(sorted(known))}" if len(known) <= 12 else " of docs/topology.md"
    return document.fault("key.unknown", path, "unknown key", f"expected one{few}")


def _expected(path: Path, error: ErrorDetails) -> str:
    limits: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "greater_than_equal":
            return f"{limits['ge']} or more"
        case "greater_than":
            return f"more than {limits['gt']}"
        case "less_than_equal":
            return f"{limits['le']} or less"
        case "literal_error":
            return str(limits["expected"])
        case "string_pattern_mismatch":
            return _PATTERNS.get(str(path[-1] if len(path) < 2 else path[-2]), _PATTERNS["devices"])
    return _EXPECTED.get(error["type"], error["msg"])


_PATTERNS = {
    "devices": "device ids with commas between them, as in '0,1', or cpu",
    "input_connectors": "from_stage_ and a stage id, as in from_stage_0",
    "output_connectors": "to_stage_ and a stage id, as in to_stage_1",
    "env": "the name of an environment variable",
}


def shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOW_AT_MOST else f"{text[: _SHOW_AT_MOST - 1]}…"
