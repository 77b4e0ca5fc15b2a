"""Ports for engines on this machine: free ones, apart from each other and from those that a deploy file names."""

from __future__ import annotations

from collections.abc import Iterable

from common.errors import ConfigurationError
from common.ports import free_ports, require_free

LAST = 65535


class Ports:
    def __init__(self, kept: Iterable[int] = ()) -> None:
        """`kept` are never given."""
        self._taken = set(kept)

    def take(self, count: int = 1) -> int:
        """The first of `count` ports in a row that nobody listens on now."""
        while True:
            (first,) = free_ports(1)
            row = range(first, first + count)
            if row[-1] <= LAST and self._taken.isdisjoint(row) and all(_is_free(port) for port in row[1:]):
                self._taken.update(row)
                return first


def _is_free(port: int) -> bool:
    try:
        require_free("127.0.0.1", port)
    except ConfigurationError:
        return False
    return True
