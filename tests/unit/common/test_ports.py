"""Free ports: none that the kernel may give away before they are used."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from common import ports
from common.errors import ConfigurationError
from common.ports import free_ports, not_ephemeral, require_free


def test_they_are_free_and_different() -> None:
    found = free_ports(200)
    assert len(set(found)) == 200
    for port in found:
        require_free("127.0.0.1", port)


def test_no_outgoing_connection_can_take_one() -> None:
    among = not_ephemeral()
    assert all(port in among for port in free_ports(50))
    if ports.EPHEMERAL.exists():
        begin, end = map(int, ports.EPHEMERAL.read_text().split())
        if begin - ports.FIRST >= ports.FEWEST:
            assert not any(begin <= port <= end for port in free_ports(50))


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ("20000\t60999\n", 20000),
        ("1024 65535", 32768),
        ("10500 60999", 32768),
        ("", 32768),
        ("x", 32768),
        (None, 32768),
    ],
)
def test_they_are_below_what_the_kernel_tells(
    told: str | None, end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "range"
    if told is not None:
        file.write_text(told)
    monkeypatch.setattr(ports, "EPHEMERAL", file)
    assert not_ephemeral() == range(10_000, end)


def test_two_that_choose_at_one_time_seldom_choose_the_same() -> None:
    assert set(free_ports(20)) != set(free_ports(20))


def test_one_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_ports(1)[0]))
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"no 1 free ports on 127.0.0.1 among {port} to {port}"):
            free_ports(1, among=range(port, port + 1))
