"""What must be true of a topology before it may take a request. All rules are asked, and each fault is told.

The rules look at a topology as it is on one kind of machine, and at each of its platforms in turn: what a platform
breaks is told for that platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from common.connectors import Connector
from common.topology import placement_rules, stage_rules
from common.topology.fault import Fault, TopologyInvalid
from common.topology.kv import connector_of, known
from common.topology.sides import Side, check_pair
from common.topology.topology import Topology

USABLE = 0.9
"""Share of a lease in which a handoff is used; connectors hold the rest back."""
Rule = Callable[[Topology], Iterable[Fault]]
RULES: tuple[Rule, ...] = (
    stage_rules.connectors,
    stage_rules.edges,
    stage_rules.async_chunk,
    stage_rules.prefix_caching,
    placement_rules.pair_devices,
    placement_rules.device_counts,
    placement_rules.device_memory,
    placement_rules.ports,
    placement_rules.side_ports,
    placement_rules.engine_ids,
)


def check(topology: Topology, *, platform: str | None = None) -> None:
    """Raises TopologyInvalid with every fault; of one platform if it is named, else of the file and all platforms."""
    faults = faults_of(topology, platform=platform)
    if faults:
        raise TopologyInvalid(faults)


def faults_of(topology: Topology, *, platform: str | None = None) -> list[Fault]:
    if platform is not None:
        return list(_on(topology.on(platform)))
    found = list(_on(replace(topology, platforms={})))
    told = {(fault.rule, fault.what) for fault in found}
    for name in topology.platforms:
        more = [fault for fault in _on(topology.on(name)) if (fault.rule, fault.what) not in told]
        found += [replace(fault, what=f"on {name}: {fault.what}") for fault in more]
    return found


def _on(topology: Topology) -> Iterator[Fault]:
    for rule in RULES:
        yield from rule(topology)
    if topology.pair is not None:
        yield from _pair(topology)


def _pair(topology: Topology) -> Iterator[Fault]:
    assert topology.pair is not None
    prefill, decode = (topology.stage(id_) for id_ in (topology.pair.prefill, topology.pair.decode))
    kv: Connector | None = None
    try:
        kv = connector_of(topology)
    except TopologyInvalid as e:
        yield from e.faults
    yield from check_pair(Side.of_stage(topology, prefill), Side.of_stage(topology, decode), kv)
    if kv is not None:
        yield from _agrees(topology, kv)
        yield from _lease(topology, kv)


def _agrees(topology: Topology, kv: Connector) -> Iterator[Fault]:
    """`pd.connector` of a file with four stages, where the configurations are the engines' own."""
    split = topology.split
    if split is None or split.connector is None:
        return
    asked = known(topology, split.connector, split.where("connector"))
    if asked.name != kv.name:
        yield topology.fault(
            "pd.connector",
            split.where("connector"),
            f"pd.connector is {split.connector!r}, and prefill's kv_transfer_config names {kv.name}",
            "name the same in both, or leave pd.connector out",
        )


def _lease(topology: Topology, kv: Connector) -> Iterator[Fault]:
    """A handoff is not used in the last tenth of its lease; one that queues for longer would always be too late."""
    split = topology.split
    if split is None or split.expected_queueing is None or split.expected_queueing < USABLE * kv.lease:
        return
    of = "the connector's default" if split.lease is None else "pd.lease"
    yield topology.fault(
        "pd.lease",
        split.where("lease"),
        f"prefill keeps KV for {kv.lease:g} s ({of}), and a request may wait {split.expected_queueing:g} s for decode "
        f"(pd.expected_queueing); expected a lease of more than {split.expected_queueing / USABLE:.3g} s",
        "raise pd.lease, or add decode engines until requests wait less",
    )
