"""Ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from common.errors import ConfigurationError

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Which ports the kernel gives to outgoing connections, where it tells: two numbers."""
EPHEMERAL_FROM = 32768
"""Linux' own default; elsewhere they begin higher."""
FIRST = 10_000
FEWEST = 1000
TRIES = 1000


def free_ports(count: int, host: str = "127.0.0.1", *, among: range | None = None) -> list[int]:
    """Ports that nobody listens on now, all different, and none that an outgoing connection could take before they are
    used. Somebody else may: they are chosen at random, so that two who choose at one time seldom choose the same.

    Raises ConfigurationError if there are none.
    """
    among = among or not_ephemeral()
    choice = random.Random()  # the module's own may have been seeded
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(count * TRIES):
            if len(found) == count:
                break
            port = choice.choice(among)
            s = held.enter_context(socket.socket())
            try:
                s.bind((host, port))
            except OSError:
                s.close()
            else:
                found.append(port)
    if len(found) < count:
        raise ConfigurationError(f"no {count} free ports on {host} among {among[0]} to {among[-1]}")
    return found


def not_ephemeral() -> range:
    """Ports that the kernel gives to no outgoing connection: below its range, or below the usual one if that leaves too
    few."""
    try:
        begin = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        begin = EPHEMERAL_FROM
    return range(FIRST, begin if begin - FIRST >= FEWEST else EPHEMERAL_FROM)


def require_free(host: str, port: int) -> None:
    """Raises ConfigurationError if somebody listens on the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError as e:
            raise ConfigurationError(f"port {port} on {host} cannot be used: {e.strerror}; choose another") from None
