"""Which devices a stage runs on, and which are still free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import count, islice

from common.topology.topology import CPU, Stage, Topology

MEMORY = 0.92
"""vLLM 0.32's `gpu_memory_utilization` where none is set."""


def devices(stage: Stage) -> tuple[str, ...] | None:
    """Ids in the file's order; empty on the CPU, which several stages may share; None if the file names none."""
    named = stage.settings.get("devices")
    if named is None:
        return None
    if named.strip() == CPU:
        return ()
    return tuple(part.strip() for part in named.split(","))


def replicas(stage: Stage) -> int:
    return int(stage.settings.get("num_replicas", 1))


def world(topology: Topology, stage: Stage) -> int:
    """How many devices one engine of the stage takes."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    size = 1
    for name in sizes:
        size *= int(topology.value(stage, name, 1))
    return size


def in_use(topology: Topology, stages: Iterable[Stage]) -> set[str]:
    return {device for stage in stages for device in devices(stage) or ()}


def free(number: int, taken: Collection[str]) -> str | None:
    """The lowest ids that nobody has, as `devices` spells them; None if ids are no numbers and cannot be counted on."""
    if not all(device.isascii() and device.isdigit() for device in taken):
        return None
    used = {int(device) for device in taken}
    return ",".join(map(str, islice((i for i in count() if i not in used), number)))
