"""Ports on the loopback interface."""

from __future__ import annotations

import socket

from common.errors import ConfigurationError


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on now, all different. Somebody may take one before it is used: use them soon."""
    held = [socket.socket() for _ in range(count)]
    try:
        for s in held:
            s.bind((host, 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


def require_free(host: str, port: int) -> None:
    """Raises ConfigurationError if somebody listens on the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError as e:
            raise ConfigurationError(f"port {port} on {host} cannot be used: {e.strerror}; choose another") from None
