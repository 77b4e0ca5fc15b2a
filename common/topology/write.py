"""A topology as a deploy file again, with everything said in it: it loads as what it was written from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from common.engine import Role
from common.topology.expand import Expansion
from common.topology.topology import Split, Stage, Topology

WIDTH = 115


def as_document(topology: Topology) -> dict[str, Any]:
    """JSON values in the shape of a file."""
    document: dict[str, Any] = {"pipeline": topology.pipeline, **topology.shared.values}
    if topology.connectors:
        document["connectors"] = topology.connectors
    if topology.edges:
        document["edges"] = [dict(edge) for edge in topology.edges]
    document["stages"] = [_stage(topology, stage) for stage in topology]
    if topology.platforms:
        document["platforms"] = {
            name: {**p.shared.values, "stages": [{"stage_id": i, **s.values} for i, s in p.stages.items()]}
            for name, p in topology.platforms.items()
        }
    return document


def _stage(topology: Topology, stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {"stage_id": stage.id, "model_stage": stage.kind.value}
    if stage.is_side:
        found[f"is_{stage.role.value}_only"] = True
    found["engine_input_source"] = list(stage.sources)
    found["final_output"] = stage.output is not None
    if stage.output is not None:
        found["final_output_type"] = stage.output
    found |= stage.settings.values
    found |= _ends("input_connectors", "from_stage", stage.inputs)
    found |= _ends("output_connectors", "to_stage", stage.outputs)
    if topology.split is not None and stage.role is Role.PREFILL:
        found["pd"] = _split(topology.split)
    return found


def _ends(key: str, prefix: str, ends: Mapping[int, str]) -> dict[str, Any]:
    return {key: {f"{prefix}_{id_}": name for id_, name in ends.items()}} if ends else {}


def _split(split: Split) -> dict[str, Any]:
    said = {"connector": split.connector, "lease": split.lease, "expected_queueing": split.expected_queueing}
    return {name: value for name, value in said.items() if value is not None}


def as_yaml(expansion: Expansion) -> str:
    """The file, and above it a comment line for each setting that is not simply the Thinker's."""
    head = "".join(f"# {note}\n" for note in expansion.notes)
    unshared = json.loads(json.dumps(as_document(expansion.topology)))  # else what two stages share becomes an anchor
    return head + str(yaml.safe_dump(unshared, sort_keys=False, allow_unicode=True, width=WIDTH))


def as_json(expansion: Expansion) -> dict[str, Any]:
    """`{topology, notes: [{how, stage, name, was, now, path, line, platform}]}`."""
    notes = [
        {
            **{name: getattr(note, name) for name in ("how", "stage", "name", "was", "now", "platform")},
            "path": str(note.place),
            "line": note.place.line,
        }
        for note in expansion.notes
    ]
    return {"topology": as_document(expansion.topology), "notes": notes}
