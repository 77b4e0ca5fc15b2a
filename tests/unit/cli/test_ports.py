"""Ports for engines: free, apart from each other, and none that somebody else must have."""

from __future__ import annotations

import pytest

from cli.local import ports
from cli.local.ports import Ports
from common.ports import free_ports, require_free


def test_ports_in_a_row_are_free_and_given_once() -> None:
    it = Ports()
    given = [port for count in (1, 3, 2, 1) for first in [it.take(count)] for port in range(first, first + count)]
    assert len(set(given)) == 7
    for port in given:
        require_free("127.0.0.1", port)


def test_what_is_kept_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (kept, other) = free_ports(2)
    offered = iter([[kept], [kept], [other]])
    it = Ports([kept])
    monkeypatch.setattr(ports, "free_ports", lambda count: next(offered))
    assert it.take() == other
