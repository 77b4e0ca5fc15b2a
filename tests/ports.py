"""Ports for what binds them later, an engine that is a minute on its way up: none is given out twice in this process,
nor in another one of the same run."""

from __future__ import annotations

import os

from common.ports import free_ports, not_ephemeral

_GIVEN: set[int] = set()


def own_ports(count: int) -> list[int]:
    """As `free_ports`, and each of them is the caller's for the whole run."""
    found: list[int] = []
    while len(found) < count:
        (port,) = free_ports(1, among=_slice())
        if port not in _GIVEN:
            _GIVEN.add(port)
            found.append(port)
    return found


def _slice() -> range:
    """Every so many-th port: with `-n` each process has its own, else there is one for all."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return not_ephemeral()[int(worker.removeprefix("gw")) :: int(count)]
