"""Rules about what engines share: devices, memory on them, and ports of one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from common.connectors import Connector
from common.topology.devices import MEMORY, devices, replicas, world
from common.topology.fault import Fault, TopologyInvalid
from common.topology.kv import KV, connector_of, port_variables
from common.topology.topology import Stage, Topology


def pair_devices(topology: Topology) -> Iterator[Fault]:
    """Prefill and decode have device sets of their own."""
    if topology.pair is None:
        return
    prefill, decode = topology.stage(topology.pair.prefill), topology.stage(topology.pair.decode)
    lacking = [stage for stage in (prefill, decode) if devices(stage) is None]
    if lacking:
        yield topology.fault(
            "devices.missing",
            lacking[0].settings.place,
            f"{' and '.join(stage.name for stage in lacking)} "
            f"{'have' if len(lacking) > 1 else 'has'} no devices; expected sets apart for prefill and decode",
            f"name them: devices, {' and '.join(f'pd.{stage.short}.devices' for stage in lacking)}, or cpu",
        )
    shared = sorted(set(devices(prefill) or ()) & set(devices(decode) or ()))
    if shared:
        yield topology.fault(
            "devices.overlap",
            decode.settings.where("devices"),
            f"{prefill.name} has devices {_named(prefill)}, {decode.name} {_named(decode)}: both have "
            f"{', '.join(shared)}; expected sets apart",
            f"give one of them other devices, say by pd.{decode.short}.devices",
        )


def _named(stage: Stage) -> str:
    return repr(stage.settings.get("devices"))


def device_counts(topology: Topology) -> Iterator[Fault]:
    """As many devices as the stage's engines take, each once."""
    for stage in topology:
        mine = devices(stage)
        if not mine:
            continue
        twice = sorted({device for device in mine if mine.count(device) > 1})
        if twice:
            yield topology.fault(
                "devices.twice",
                stage.settings.where("devices"),
                f"{stage.name} has device {', '.join(twice)} twice in {_named(stage)}",
                "name each device once",
            )
            continue
        size, engines = world(topology, stage), replicas(stage)
        if len(mine) != size * engines:
            yield topology.fault(
                "devices.count",
                stage.settings.where("devices"),
                f"{stage.name} has devices {_named(stage)}, which are {len(mine)}; expected {size * engines}: "
                f"num_replicas is {engines}, and tensor, pipeline and data parallel sizes make {size} of each",
                "change devices, num_replicas or the parallel sizes until they agree",
            )


def device_memory(topology: Topology) -> Iterator[Fault]:
    """Stages may share a device as long as their shares of its memory add up to all of it at most."""
    sharers: dict[str, list[Stage]] = {}
    for stage in topology:
        for device in set(devices(stage) or ()):
            sharers.setdefault(device, []).append(stage)
    pair = topology.pair
    told: set[tuple[int, ...]] = set()
    for device, stages in sorted(sharers.items()):
        ids = tuple(stage.id for stage in stages)
        shares = [float(stage.settings.get("gpu_memory_utilization", MEMORY)) for stage in stages]
        if len(stages) < 2 or round(sum(shares), 6) <= 1 or ids in told:
            continue
        if pair is not None and {pair.prefill, pair.decode} <= set(ids):
            continue  # refused already, whatever their shares are
        told.add(ids)
        each = ", ".join(f"{stage.name} {share:g}" for stage, share in zip(stages, shares, strict=True))
        yield topology.fault(
            "devices.memory",
            stages[-1].settings.where("gpu_memory_utilization"),
            f"device {device} is asked for {sum(shares):.3g} of its memory (gpu_memory_utilization): {each}",
            "lower them to 1 in all, or move one of the stages to another device",
        )


@dataclass(frozen=True, slots=True)
class _Range:
    """Ports `first` to `last` of one engine, for `what`."""

    stage: Stage
    what: str
    first: int
    last: int
    name: str

    def meets(self, other: _Range) -> bool:
        return self.first <= other.last and other.first <= self.last


def ports(topology: Topology) -> Iterator[Fault]:
    """Where engines listen. A stage's replicas take the ports from its `port` on."""
    found = []
    for stage in topology:
        port = stage.settings.get("port")
        if port is not None:
            found.append(_Range(stage, "port", port, port + replicas(stage) - 1, "port"))
    yield from _collisions(topology, found)


def side_ports(topology: Topology) -> Iterator[Fault]:
    """Where KV connectors listen: each engine of a split on a port of its own for each data parallel rank."""
    kv = _connector(topology)
    if kv is not None and topology.pair is not None:
        pair = (topology.stage(topology.pair.prefill), topology.stage(topology.pair.decode))
        yield from side_ports_of(topology, pair, kv)


def side_ports_of(topology: Topology, sides: Iterable[Stage], kv: Connector) -> Iterator[Fault]:
    """`side_port` is counted up for replicas. A connector's own variable in `env` is the same for all of a stage's."""
    found: list[_Range] = []
    for stage in sides:
        ranks = int(topology.value(stage, "data_parallel_size", 1))
        engines = replicas(stage)
        port = stage.settings.get("side_port")
        if port is not None:
            found.append(_Range(stage, "side_port", port, port + engines * ranks - 1, "side_port"))
            continue
        for name in port_variables(kv):
            value = str(stage.settings.get("env", {}).get(name, ""))
            if value.isdigit():
                first = int(value)
                found += [_Range(stage, name, first, first + ranks - 1, "env")] * engines
    found += [
        _Range(stage, "port", port, port + replicas(stage) - 1, "port")
        for stage in topology
        if (port := stage.settings.get("port")) is not None
    ]
    yield from _collisions(topology, [r for r in found if r.what != "port"], [r for r in found if r.what == "port"])


def _connector(topology: Topology) -> Connector | None:
    try:
        return connector_of(topology)
    except TopologyInvalid:
        return None  # told by the pair's own rules


def _collisions(topology: Topology, some: list[_Range], others: list[_Range] | None = None) -> Iterator[Fault]:
    told: set[tuple[int, int, str, str]] = set()
    for i, one in enumerate(some):
        for other in [*some[:i], *(others or [])]:
            key = (one.stage.id, other.stage.id, one.what, other.what)
            if not one.meets(other) or key in told:
                continue
            told.add(key)
            yield topology.fault(
                "ports",
                one.stage.settings.where(one.name),
                f"ports collide: {_both(one, other)} listen on the same",
                "choose ports that are apart, or leave them out and let free ones be taken",
            )


def _both(one: _Range, other: _Range) -> str:
    if one.stage is not other.stage:
        return f"{other.stage.name} ({other.what} {_span(other)}) and {one.stage.name} ({one.what} {_span(one)})"
    if one.what != other.what:
        return f"{other.what} {_span(other)} and {one.what} {_span(one)} of {one.stage.name}"
    return f"the {replicas(one.stage)} engines of {one.stage.name} ({one.what} {_span(one)})"


def _span(ports: _Range) -> str:
    return str(ports.first) if ports.first == ports.last else f"{ports.first} to {ports.last}"


def engine_ids(topology: Topology) -> Iterator[Fault]:
    """A KV engine id names one engine: connectors keep their connections by it."""
    seen: dict[str, Stage] = {}
    for stage in topology:
        id_ = (stage.settings.get(KV) or {}).get("engine_id")
        if id_ is None:
            continue
        other = seen.setdefault(id_, stage)
        if other is not stage or replicas(stage) > 1:
            several = f"the {replicas(stage)} engines of {stage.name}"
            both = several if other is stage else f"{other.name} and {stage.name}"
            yield topology.fault(
                "engine_id",
                stage.settings.where(KV),
                f"{both} have the same kv_transfer_config.engine_id {id_!r}; expected one for each engine",
                "leave engine_id out: each engine makes one of its own",
            )
