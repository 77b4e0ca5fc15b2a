"""Where other engines reach one that listens on a given host."""

from __future__ import annotations

import ipaddress
import socket

_EVERYWHERE = {"": socket.AF_INET, "0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that are kept for documentation (RFC 5737, RFC 3849): the way to them is the way out of this machine."""
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def reached_at(host: str) -> str:
    """`host` itself; for one that means all addresses, this machine's own on its way out, else the loopback.

    Nothing is sent: a UDP socket has its own address once it knows where it would send to.
    """
    family = _EVERYWHERE.get(host)
    if family is None:
        return host
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as way_out:
            way_out.connect((_ELSEWHERE[family], 9))
            return str(way_out.getsockname()[0])
    except OSError:
        return _LOOPBACK[family]


def reached(host: str, port: int) -> str:
    """The base URL at which others reach a server that listens there."""
    at = reached_at(host)
    return f"http://{f'[{at}]' if ':' in at else at}:{port}"


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
