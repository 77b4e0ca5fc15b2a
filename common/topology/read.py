"""From a deploy file to a topology: every stage gets its kind, its role, its sources and what leaves it.

Three stages have theirs from the pipeline. Four that were written by hand say which two are the Thinker
(`is_prefill_only`, `is_decode_only`); the others follow the pipeline's order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from common.topology.detect import Marks, detect
from common.topology.document import Document, load
from common.topology.fault import Fault, Path, TopologyInvalid
from common.topology.names import nearest
from common.topology.pipelines import DEFAULT_PIPELINE, PIPELINES, Kind
from common.topology.schema import Settings as SettingsSchema
from common.topology.topology import Pair, Platform, Settings, Sides, Split, Stage, Topology
from common.topology.validate import validate
from common.topology.wire import wire

_OF_STAGE = frozenset(
    (
        *("stage_id", "model_stage", "engine_input_source", "is_prefill_only", "is_decode_only"),
        *("final_output", "final_output_type", "input_connectors", "output_connectors", "pd"),
    )
)
_OF_FILE = frozenset(("stages", "pipeline", "connectors", "edges", "platforms"))


def read(path: FilePath) -> Topology:
    """Raises TopologyInvalid, with a fault for each thing that is wrong."""
    return of(load(path))


def of(document: Document) -> Topology:
    """Raises TopologyInvalid for what the schema does not allow, and for stages that are no pipeline.

    The invariants are not looked at here: they are of what is to run, which may be split yet.
    """
    validate(document)
    values = document.values
    pipeline = values.get("pipeline") or DEFAULT_PIPELINE
    if pipeline not in PIPELINES:
        near = nearest(pipeline, PIPELINES)
        do = f"did you mean {near}?" if near else f"expected one of {', '.join(PIPELINES)}"
        raise TopologyInvalid([document.fault("pipeline", ("pipeline",), f"no pipeline is called {pipeline!r}", do)])
    marks = [_marks(document, i, stage) for i, stage in enumerate(values["stages"])]
    _require_ids(document, marks)
    pair, faults = detect(document, marks)
    if faults:
        raise TopologyInvalid(faults)
    stages = wire(document, pipeline, sorted(marks, key=lambda m: m.id), pair)
    return Topology(
        file=document.file,
        pipeline=pipeline,
        stages=tuple(_with_settings(document, stage, marks) for stage in stages),
        shared=_settings(document, values, (), without=_OF_FILE),
        connectors=values.get("connectors") or {},
        edges=tuple(values.get("edges") or ()),
        platforms=_platforms(document, stages, pair),
        split=_split(document, marks, pair, stages),
        pair=pair,
    )


def _marks(document: Document, index: int, stage: Mapping[str, Any]) -> Marks:
    return Marks(
        id=stage["stage_id"],
        path=("stages", index),
        prefill=bool(stage.get("is_prefill_only")),
        decode=bool(stage.get("is_decode_only")),
        sources=None if stage.get("engine_input_source") is None else tuple(stage["engine_input_source"]),
        kind=stage.get("model_stage"),
        final=stage.get("final_output"),
        output=stage.get("final_output_type"),
    )


def _require_ids(document: Document, marks: list[Marks]) -> None:
    first: dict[int, Marks] = {}
    for mark in marks:
        if mark.id in first:
            path = (*mark.path, "stage_id")
            what = f"stage_id {mark.id} is taken by stages[{first[mark.id].path[1]}]; expected ids that differ"
            raise TopologyInvalid([document.fault("stages.id", path, what, "give each stage an id of its own")])
        first[mark.id] = mark


def _with_settings(document: Document, stage: Stage, marks: list[Marks]) -> Stage:
    path = next(mark.path for mark in marks if mark.id == stage.id)
    values = document.values["stages"][path[1]]
    return replace(
        stage,
        settings=_settings(document, values, path, without=_OF_STAGE),
        inputs=_ends(values.get("input_connectors")),
        outputs=_ends(values.get("output_connectors")),
    )


def _ends(connectors: Mapping[str, str] | None) -> dict[int, str]:
    """`from_stage_0: name` and `to_stage_1: name` by the id in them."""
    return {int(end.rpartition("_")[2]): name for end, name in (connectors or {}).items()}


def _settings(
    document: Document, values: Mapping[str, Any], path: Path, *, without: frozenset[str] = _OF_STAGE
) -> Settings:
    """Flat: what stands in a nested block is taken out of it, as vLLM-Omni does."""
    found = dict(_flat(values, path, without))
    places = {name: document.place((*path, name)) for name in values}
    return Settings(
        {name: value for name, (value, _) in found.items()},
        {**places, **{name: document.place(where) for name, (_, where) in found.items()}},
        document.place(path),
    )


def _flat(values: Mapping[str, Any], path: Path, without: frozenset[str]) -> Iterator[tuple[str, tuple[Any, Path]]]:
    for name, value in values.items():
        if name in SettingsSchema.NESTED:
            yield from _flat(value or {}, (*path, name), without)
        elif name not in without:
            yield name, (_plain(name, value), (*path, name))


def _plain(name: str, value: Any) -> Any:
    return str(value) if name == "devices" and value is not None else value


def _sides(document: Document, pd: Mapping[str, Any] | None, path: Path) -> Sides:
    pd = pd or {}
    return Sides(
        prefill=_settings(document, pd.get("prefill") or {}, (*path, "pd", "prefill")),
        decode=_settings(document, pd.get("decode") or {}, (*path, "pd", "decode")),
    )


def _platform_faults(document: Document, stages: list[Stage], pair: Pair | None) -> Iterator[Fault]:
    """Entries of stages that are not there, or twice, and `pd` where there is nothing to split."""
    by_id = {stage.id: stage for stage in stages}
    for name, platform in (document.values.get("platforms") or {}).items():
        seen: set[int] = set()
        for i, entry in enumerate(platform.get("stages") or ()):
            path: Path = ("platforms", name, "stages", i)
            id_ = entry["stage_id"]
            if id_ not in by_id or id_ in seen:
                what = f"stage {id_} stands twice" if id_ in seen else f"there is no stage {id_}"
                do = "put both into one" if id_ in seen else f"expected one of {', '.join(map(str, by_id))}"
                yield document.fault("platforms.stage", (*path, "stage_id"), what, do)
            elif entry.get("pd") is not None and (pair is not None or by_id[id_].kind is not Kind.THINKER):
                what = f"pd stands on {by_id[id_].name}, which is not to be split"
                yield document.fault("pd.place", (*path, "pd"), what, "write its settings into the stage's own entry")
            seen.add(id_)


def _platforms(document: Document, stages: list[Stage], pair: Pair | None) -> dict[str, Platform]:
    faults = list(_platform_faults(document, stages, pair))
    if faults:
        raise TopologyInvalid(faults)
    platforms: dict[str, Platform] = {}
    for name, platform in (document.values.get("platforms") or {}).items():
        entries: dict[int, Settings] = {}
        sides = Sides()
        for i, stage in enumerate(platform.get("stages") or ()):
            path: Path = ("platforms", name, "stages", i)
            entries[stage["stage_id"]] = _settings(document, stage, path)
            if stage.get("pd") is not None:
                sides = _sides(document, stage["pd"], path)
        shared = _settings(document, platform, ("platforms", name), without=frozenset(("stages",)))
        platforms[name] = Platform(entries, sides, shared)
    return platforms


def _split(document: Document, marks: list[Marks], pair: Pair | None, stages: list[Stage]) -> Split | None:
    """What `pd:` says. It stands on the Thinker; in a file with four stages on prefill, without sides of its own."""
    for mark in marks:
        values = document.values["stages"][mark.path[1]]
        if "pd" not in values:
            continue
        pd, path = values["pd"] or {}, (*mark.path, "pd")
        faults = list(_misplaced(document, path, mark, pair, stages, pd))
        if faults:
            raise TopologyInvalid(faults)
        return Split(
            connector=pd.get("connector"),
            lease=pd.get("lease"),
            expected_queueing=pd.get("expected_queueing"),
            sides=_sides(document, pd, mark.path),
            place=document.place(path),
            places={name: document.place((*path, name)) for name in pd},
        )
    return None


def _misplaced(
    document: Document, path: Path, mark: Marks, pair: Pair | None, stages: list[Stage], pd: Mapping[str, Any]
) -> Iterator[Fault]:
    stage = next(stage for stage in stages if stage.id == mark.id)
    if pair is None and stage.kind is not Kind.THINKER:
        yield document.fault(
            "pd.place", path, f"pd stands on {stage.name}", "move it to the thinker: the talker is not split"
        )
    elif pair is not None and mark.id != pair.prefill:
        yield document.fault(
            "pd.place", path, f"pd stands on {stage.name}", f"move it to stage {pair.prefill}, the prefill stage"
        )
    elif pair is not None:
        for side in ("prefill", "decode"):
            if pd.get(side) is not None:
                yield document.fault(
                    "pd.place",
                    (*path, side),
                    f"this file has its own {side} stage",
                    f"write these settings into stage {getattr(pair, side)}",
                )
