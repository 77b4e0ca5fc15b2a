"""This machine, as far as a gateway cares."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

from cli.doctor.finding import Check, Finding, ok, warning

LEAST_MEMORY = 512 * 2**20
"""Bytes that should be available: a gateway takes about 150 MiB, and the bodies that it holds."""
FILES_PER_REQUEST = 3
"""Open files of one request: its client's connection, and one to each engine."""
LEAST_OPEN_FILES = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    """`memory` is what is available, in bytes, None where the system does not tell. `open_files` and `open_files_max`
    are the soft and the hard limit of this process, None for no limit."""

    python: str
    system: str
    cores: int
    memory: int | None
    open_files: int | None
    open_files_max: int | None


def look() -> Machine:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=_cores(),
        memory=_available(Path("/proc/meminfo")),
        open_files=None if soft == resource.RLIM_INFINITY else soft,
        open_files_max=None if hard == resource.RLIM_INFINITY else hard,
    )


def judge(machine: Machine) -> list[Finding]:
    python = ok(Check.PYTHON, f"Python {machine.python}, {machine.system}")
    return [python, ok(Check.CORES, f"{machine.cores} cores"), _memory(machine), _open_files(machine)]


def _memory(machine: Machine) -> Finding:
    if machine.memory is None:
        return ok(Check.MEMORY, "the system does not tell how much memory is available")
    seen = f"{machine.memory / 2**20:,.0f} MiB of memory available"
    if machine.memory >= LEAST_MEMORY:
        return ok(Check.MEMORY, seen)
    return warning(
        Check.MEMORY,
        seen,
        why=f"a gateway with long prompts in flight wants {LEAST_MEMORY / 2**20:,.0f} MiB or more",
        do="free memory on this machine, or lower DUET_MAX_BODY_BYTES",
    )


def _open_files(machine: Machine) -> Finding:
    limit = machine.open_files
    if limit is None:
        return ok(Check.OPEN_FILES, "no limit of open files")
    seen = f"{limit} open files: about {limit // FILES_PER_REQUEST} requests at a time"
    if limit >= LEAST_OPEN_FILES:
        return ok(Check.OPEN_FILES, seen)
    most = "more" if machine.open_files_max is None else f"up to {machine.open_files_max}"
    return warning(
        Check.OPEN_FILES,
        seen,
        why="a request beyond that cannot be accepted, or cannot reach its engines",
        do=f"`ulimit -n 65536` before the gateway starts, or LimitNOFILE= in its service; {most} is allowed here",
    )


def _cores() -> int:
    """Those that this process may run on, which in a container may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _available(meminfo: Path) -> int | None:
    """`MemAvailable` of Linux in bytes; None where there is none."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None
