"""Which two stages of a file are prefill and decode of one split.

One stage marked `is_prefill_only`, one marked `is_decode_only`, and the second lists the first as its source. No marks
are no split; anything in between is refused, because half a split would run as none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.topology.document import Document
from common.topology.fault import Fault, Path
from common.topology.topology import Pair


@dataclass(frozen=True, slots=True)
class Marks:
    """What a stage says about its place in the pipeline; None where it leaves that to the pipeline."""

    id: int
    path: Path
    prefill: bool
    decode: bool
    sources: tuple[int, ...] | None
    kind: str | None
    final: bool | None
    output: str | None


def detect(document: Document, marks: Sequence[Marks]) -> tuple[Pair | None, list[Fault]]:
    """The pair, if there is one. Faults name both sides."""
    prefill = [mark for mark in marks if mark.prefill]
    decode = [mark for mark in marks if mark.decode]
    if not prefill and not decode:
        return None, []
    faults = list(_faults(document, prefill, decode))
    return (None, faults) if faults else (Pair(prefill[0].id, decode[0].id), [])


def _faults(document: Document, prefill: list[Marks], decode: list[Marks]) -> Iterator[Fault]:
    both = [mark for mark in prefill if mark.decode]
    if both:
        yield document.fault(
            "pd.both",
            (*both[0].path, "is_decode_only"),
            f"stage {both[0].id} is marked is_prefill_only and is_decode_only",
            "keep one of the two, and give the other to a second Thinker stage",
        )
        return
    for some, others, mark, lacks in (
        (prefill, decode, "is_prefill_only", "is_decode_only"),
        (decode, prefill, "is_decode_only", "is_prefill_only"),
    ):
        if len(some) > 1:
            ids = " and ".join(str(one.id) for one in some)
            yield document.fault(
                "pd.pairs",
                (*some[1].path, mark),
                f"stages {ids} are marked {mark}; expected exactly one pair a pipeline",
                "for more engines of a role set num_replicas and devices",
            )
        if some and not others:
            yield document.fault(
                "pd.half",
                (*some[0].path, mark),
                f"stage {some[0].id} is marked {mark}, and no stage is marked {lacks}",
                f"mark the other Thinker stage {lacks}, or take the mark away",
            )
    if len(prefill) == len(decode) == 1 and prefill[0].id not in (decode[0].sources or ()):
        seen = "none" if decode[0].sources is None else list(decode[0].sources)
        yield document.fault(
            "pd.source",
            (*decode[0].path, "engine_input_source"),
            f"decode stage {decode[0].id} has engine_input_source {seen}; expected prefill stage {prefill[0].id} in it",
            f"set engine_input_source: [{prefill[0].id}] on stage {decode[0].id}",
        )
