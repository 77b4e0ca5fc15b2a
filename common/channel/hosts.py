"""Whether a `tcp` endpoint's host is reached by IPv4 or by IPv6. ZeroMQ must be told: without IPv6 it takes no address
of it, and with IPv6 it takes a name that has addresses of both for that of IPv6 alone, where a producer at `0.0.0.0` is
not.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

Resolve = Callable[[str, None], Sequence[tuple[Any, ...]]]
"""`socket.getaddrinfo`: its results begin with the address family."""


def by_ipv6(endpoint: str, resolve: Resolve = socket.getaddrinfo) -> bool:
    """Whether its host is an IPv6 address, or a name that has no other. Waits for the resolver where it is a name; one
    that cannot be found now is no name of IPv6."""
    host = _host(endpoint)
    if not _is_name(host):
        return ":" in host
    try:
        return {found[0] for found in resolve(host, None)} == {socket.AF_INET6}
    except (OSError, ValueError):
        return False


async def by_ipv6_within(seconds: float, endpoint: str, resolve: Resolve = socket.getaddrinfo) -> bool:
    """The same, in a thread; a name that is not found in time is no name of IPv6."""
    if not _is_name(_host(endpoint)):
        return by_ipv6(endpoint)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(None, by_ipv6, endpoint, resolve)
    except TimeoutError:
        return False


def _host(endpoint: str) -> str:
    """Without brackets; empty where there is none."""
    scheme, _, address = endpoint.partition("://")
    host = address.rpartition(":")[0] if scheme == "tcp" else ""
    return host.removeprefix("[").removesuffix("]")


def _is_name(host: str) -> bool:
    """`*` is every IPv4 address."""
    try:
        ip_address(host)
    except ValueError:
        return host not in ("", "*")
    return False
