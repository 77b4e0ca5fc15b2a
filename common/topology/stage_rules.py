"""Rules about how stages are joined: stage connectors, edges, chunks, and the Talker's prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from common.topology.fault import Fault
from common.topology.names import nearest
from common.topology.pipelines import Kind
from common.topology.topology import Stage, Topology


def connectors(topology: Topology) -> Iterator[Fault]:
    """A stage connector is one of `connectors:`, and joins stages that the pipeline joins."""
    for stage in topology:
        sources = set(stage.sources)
        consumers = {consumer.id for consumer in topology.consumers(stage.id)}
        yield from _ends(topology, stage, "input_connectors", stage.inputs, sources, "from_stage")
        yield from _ends(topology, stage, "output_connectors", stage.outputs, consumers, "to_stage")


def _ends(
    topology: Topology, stage: Stage, key: str, ends: Mapping[int, str], joined: set[int], prefix: str
) -> Iterator[Fault]:
    for id_, name in ends.items():
        place = stage.settings.where(key)
        if id_ not in joined:
            expected = " or ".join(f"{prefix}_{other}" for other in sorted(joined)) or "none"
            yield topology.fault(
                "connectors.stage",
                place,
                f"{stage.name} has {key} {prefix}_{id_}, and the pipeline does not join it to stage {id_}",
                f"expected {expected}",
            )
        if name not in topology.connectors:
            near = nearest(name, topology.connectors)
            known = ", ".join(map(repr, topology.connectors)) or "none"
            yield topology.fault(
                "connectors.name",
                place,
                f"{stage.name} has {key} {prefix}_{id_}: {name!r}, and connectors: has {known}",
                f"did you mean {near!r}?" if near else f"add {name!r} to connectors:",
            )


def edges(topology: Topology) -> Iterator[Fault]:
    for edge in topology.edges:
        consumer = next((stage for stage in topology if stage.id == edge["to"]), None)
        if consumer is None or edge["from"] not in consumer.sources:
            yield topology.fault(
                "edges",
                topology.shared.where("edges"),
                f"an edge goes from stage {edge['from']} to stage {edge['to']}, and the pipeline does not join them",
                "correct the ids or remove the edge",
            )


def async_chunk(topology: Topology) -> Iterator[Fault]:
    """A pipeline streams from end to end, or not at all: each stage's rows leave as the next one takes them."""
    with_it = [stage for stage in topology if streams(topology, stage)]
    without = [stage for stage in topology if not streams(topology, stage)]
    if not with_it or not without:
        return
    says = next(stage for stage in without if stage.settings.get("async_chunk") is False)
    yield topology.fault(
        "async_chunk",
        says.settings.where("async_chunk"),
        f"async_chunk differs: {_listed(with_it)} true, {_listed(without)} false; expected the same all along",
        "set the same on all, or async_chunk of the file and none of its stages",
    )


def _listed(stages: Sequence[Stage]) -> str:
    return f"{', '.join(stage.name for stage in stages)} {'has' if len(stages) == 1 else 'have'}"


def streams(topology: Topology, stage: Stage) -> bool:
    """Whether a stage's rows leave as they come. The file's `async_chunk` allows it (it does unless it says no), and
    the stage's own can only forbid it."""
    return topology.shared.get("async_chunk", True) is True and stage.settings.get("async_chunk") is not False


def prefix_caching(topology: Topology) -> Iterator[Fault]:
    """All of a Talker's prompts are the same placeholder ids, so a cached prefix would be another request's speech."""
    for stage in topology.of(Kind.TALKER):
        if topology.value(stage, "enable_prefix_caching") is True:
            yield topology.fault(
                "talker.enable_prefix_caching",
                stage.settings.where("enable_prefix_caching"),
                f"{stage.name} has enable_prefix_caching true; expected false: its prompts are placeholders, and a "
                "cached prefix would be another request's speech",
                "set enable_prefix_caching: false",
            )
