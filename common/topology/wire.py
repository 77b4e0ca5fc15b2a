"""A pipeline's stages put to those of a file: who feeds whom, and what leaves.

Where a file says it too (`model_stage`, `engine_input_source`, `final_output`), it must say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.engine import Role
from common.topology.detect import Marks
from common.topology.document import Document
from common.topology.fault import Fault, TopologyInvalid
from common.topology.pipelines import PIPELINES, Contract, Kind
from common.topology.topology import Pair, Settings, Stage


def wire(document: Document, pipeline: str, marks: Sequence[Marks], pair: Pair | None) -> list[Stage]:
    """The stages without their settings, by id. `marks` stand by id.

    Raises TopologyInvalid if they are not the pipeline's, or if the file contradicts it.
    """
    contracts = _contracts(pipeline, pair, marks)
    if len(contracts) != len(marks):
        raise TopologyInvalid([_count(document, pipeline, contracts, marks)])
    ids: dict[Kind, int] = {}
    for mark, contract in zip(marks, contracts, strict=True):
        ids[contract.kind] = pair.decode if pair and contract.kind is Kind.THINKER else mark.id
    stages = [_stage(mark, contract, ids, pair) for mark, contract in zip(marks, contracts, strict=True)]
    faults = [
        fault for mark, stage in zip(marks, stages, strict=True) for fault in _contradictions(document, mark, stage)
    ]
    if faults:
        raise TopologyInvalid(faults)
    return stages


def _contracts(pipeline: str, pair: Pair | None, marks: Sequence[Marks]) -> list[Contract]:
    """One for each stage, in their order: the Thinker's for both sides of a pair."""
    thinker, *others = PIPELINES[pipeline]
    if pair is None:
        return [thinker, *others]
    rest = iter(others)
    found = [thinker if mark.id in (pair.prefill, pair.decode) else next(rest, None) for mark in marks]
    return [contract for contract in found if contract is not None] + list(rest)


def _stage(mark: Marks, contract: Contract, ids: dict[Kind, int], pair: Pair | None) -> Stage:
    role, sources = contract.kind.role, () if contract.source is None else (ids[contract.source],)
    output = contract.output
    if pair is not None and mark.id == pair.prefill:
        role, output = Role.PREFILL, None
    elif pair is not None and mark.id == pair.decode:
        role, sources = Role.DECODE, (pair.prefill,)
    return Stage(mark.id, contract.kind, role, sources, output, Settings())


def _count(document: Document, pipeline: str, contracts: Sequence[Contract], marks: Sequence[Marks]) -> Fault:
    kinds = ", ".join(contract.kind for contract in contracts)
    return document.fault(
        "stages.count",
        ("stages",),
        f"{len(marks)} stages; expected the {len(contracts)} of pipeline {pipeline}: {kinds}",
        "add or remove stages, or name another pipeline; prefill and decode are marked is_prefill_only, is_decode_only",
    )


def _contradictions(document: Document, mark: Marks, stage: Stage) -> Iterator[Fault]:
    for name, seen, expected in (
        ("model_stage", mark.kind, stage.kind.value),
        ("engine_input_source", mark.sources, stage.sources),
        ("final_output", mark.final, stage.output is not None),
        ("final_output_type", mark.output, stage.output),
    ):
        if seen is not None and seen != expected:
            yield document.fault(
                f"stages.{name}",
                (*mark.path, name),
                f"{stage.name} has {name} {_text(seen)}; expected {_text(expected)}",
                "the pipeline decides it: correct it or leave it out",
            )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else repr(value)
