"""Which hosts are reached by IPv6. Names are looked up in a table; real sockets are in `tests/contract/channel`."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from common.channel.hosts import by_ipv6, by_ipv6_within

NAMES = {"four": ["10.0.0.7"], "six": ["fd00::7", "fd00::8"], "both": ["fd00::7", "10.0.0.7"], "odd": []}


class Table:
    """A resolver. `asked` has what names were looked up, and in which threads."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, host: str, port: None) -> list[tuple[Any, ...]]:
        self.asked.append((host, threading.get_ident()))
        self.answers.wait()
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET6 if ":" in at else socket.AF_INET, at) for at in NAMES[host]]


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://[::1]:7100", True),
        ("tcp://[::]:7100", True),
        ("tcp://[fe80::1%eth0]:7100", True),
        ("tcp://[::ffff:10.0.0.7]:7100", True),
        ("tcp://::1:7100", True),
        ("tcp://127.0.0.1:7100", False),
        ("tcp://0.0.0.0:7100", False),
        ("tcp://*:7100", False),
        ("ipc:///run/[::1]:7100", False),
        ("inproc://six:1", False),
        ("", False),
    ],
)
async def test_an_address_is_what_it_is_and_nobody_is_asked(endpoint: str, expected: bool) -> None:
    table = Table()
    assert by_ipv6(endpoint, table) is expected
    assert await by_ipv6_within(0.0, endpoint, table) is expected
    assert table.asked == []


@pytest.mark.parametrize(
    ("name", "expected"), [("six", True), ("both", False), ("four", False), ("odd", False), ("nobody", False)]
)
async def test_a_name_is_reached_by_ipv6_where_it_has_nothing_else(name: str, expected: bool) -> None:
    table = Table()
    assert by_ipv6(f"tcp://{name}:7100", table) is expected
    assert await by_ipv6_within(30.0, f"tcp://{name}:7100", table) is expected
    (_, here), (_, elsewhere) = table.asked
    assert here == threading.get_ident() != elsewhere, "the loop goes on meanwhile"


@pytest.mark.parametrize("name", ["x" * 64, "a..b", "a\0b", "[", "\ud800"])
def test_what_is_no_name_is_not_found(name: str) -> None:
    assert not by_ipv6(f"tcp://{name}:7100")


async def test_a_resolver_that_does_not_answer_is_not_waited_for() -> None:
    table = Table()
    table.answers.clear()
    try:
        assert not await by_ipv6_within(0.05, "tcp://six:7100", table)
    finally:
        table.answers.set()
    assert [name for name, _ in table.asked] == ["six"]
