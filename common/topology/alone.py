"""The rules that one engine can be held to before anybody knows its partner: `duet engine` asks them of its own flags.

They are the rules of a deploy file, with the same names and words. What takes two engines to compare (`pair.block_size`
and its like) is asked when an engine is listed or announces itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.engine import Role
from common.topology.fault import Fault, TopologyInvalid
from common.topology.kv import KV, known, named
from common.topology.pipelines import DEFAULT_PIPELINE, Kind
from common.topology.placement_rules import side_ports_of
from common.topology.sides import Side, own_faults
from common.topology.stage_rules import prefix_caching
from common.topology.topology import Settings, Stage, Topology


@dataclass(frozen=True, slots=True)
class _Alone(Stage):
    """An engine that is no stage of a file, and is called by what it is."""

    @property
    def name(self) -> str:
        return f"this engine ({self.kind}{f' {self.role}' if self.is_side else ''})"


def check_alone(kind: Kind, role: Role, settings: Mapping[str, Any]) -> None:
    """`settings` are named as in a deploy file. Raises TopologyInvalid with every fault."""
    faults = list(_faults(kind, role, settings))
    if faults:
        raise TopologyInvalid(faults)


def _faults(kind: Kind, role: Role, settings: Mapping[str, Any]) -> Iterator[Fault]:
    stage = _Alone(0, kind, role, (), None, Settings(settings))
    topology = Topology("", DEFAULT_PIPELINE, (stage,))
    yield from prefix_caching(topology)
    if not stage.is_side:
        return
    side = Side.of_stage(topology, stage)
    yield from own_faults(side)
    name = named(side.kv or {})
    if name is None:
        return
    try:
        kv = known(topology, name, stage.settings.where(KV))
    except TopologyInvalid as e:
        yield from e.faults
        return
    yield from side_ports_of(topology, [stage], kv)
