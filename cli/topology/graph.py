"""A topology as a picture has it: stages, what goes from one to another, and what leaves for the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from common.engine import Role
from common.topology import Topology
from common.topology.devices import devices, replicas
from common.topology.kv import connector_of
from common.topology.pipelines import Kind
from common.topology.topology import Stage

_CARRIED = {Kind.TALKER: "conditioning", Kind.CODE2WAV: "codes"}
"""What a stage is fed with."""


@dataclass(frozen=True, slots=True)
class Node:
    """`details` are for people, a line each."""

    id: int
    name: str
    details: tuple[str, ...]
    output: str | None


@dataclass(frozen=True, slots=True)
class Edge:
    """`kv` tells KV blocks, which go by a connector of vLLM's, from rows and codes, which go by the stage channel."""

    source: int
    to: int
    carries: str
    kv: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, topology: Topology) -> Graph:
        """Prefill feeds the Talker too, though it is no source of it: only prefill computes the prompt's rows."""
        edges: list[Edge] = []
        for stage in topology:
            edges += [_edge(topology, topology.stage(id_), stage) for id_ in stage.sources]
            if stage.kind is Kind.TALKER and topology.pair is not None:
                edges.append(Edge(topology.pair.prefill, stage.id, "conditioning of the prompt"))
        nodes = [Node(stage.id, stage.short, _details(topology, stage), stage.output) for stage in topology]
        return cls(tuple(nodes), tuple(edges))

    def as_json(self) -> dict[str, Any]:
        """`{nodes: [{id, name, details, output}], edges: [{source, to, carries, kv}]}`."""
        return {
            "nodes": [{"id": n.id, "name": n.name, "details": list(n.details), "output": n.output} for n in self.nodes],
            "edges": [{"source": e.source, "to": e.to, "carries": e.carries, "kv": e.kv} for e in self.edges],
        }


def _edge(topology: Topology, source: Stage, stage: Stage) -> Edge:
    if stage.role is Role.DECODE:
        kv = connector_of(topology)
        return Edge(source.id, stage.id, f"KV by {kv.name}" if kv is not None else "KV", kv=True)
    return Edge(source.id, stage.id, _CARRIED[stage.kind])


def _details(topology: Topology, stage: Stage) -> tuple[str, ...]:
    count = replicas(stage)
    found = [f"{count} engine{'s' if count > 1 else ''}, {_where(stage)}"]
    size = int(topology.value(stage, "tensor_parallel_size", 1))
    if size > 1:
        found.append(f"tensor parallel {size}")
    model = topology.value(stage, "model")
    if model is not None:
        found.append(str(model))
    return tuple(found)


def _where(stage: Stage) -> str:
    ids = devices(stage)
    if ids is None:
        return "any device"
    return f"device{'s' if len(ids) > 1 else ''} {', '.join(ids)}" if ids else "CPU"
