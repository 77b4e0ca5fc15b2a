"""The engines behind a DNS name, one at each of its addresses: a headless service of Kubernetes, say.

DUET_DECODE=dns+http://decode.models.svc:8200
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from common.connectors import Connector
from common.engine import Role
from common.errors import ConfigurationError
from gateway.discovery.port import Found, SourceAway
from gateway.discovery.told import engine_of

MARK = "dns+"
Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolved(host: str) -> Sequence[str]:
    """Its addresses in order, IPv6 without brackets, by the system's own resolver, in a thread. Raises OSError."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(row[4][0]) for row in rows})


class BehindName:
    known: Sequence[Found] = ()
    complaint: str | None = None

    def __init__(self, url: str, role: Role, kv: Connector, resolve: Resolve = resolved) -> None:
        """`url` is `dns+http://name:port`, with all that an engine's URL may say. Raises ConfigurationError."""
        plain = url.removeprefix(MARK)
        engine_of(plain, role, kv)
        parts = urlsplit(plain)
        if parts.scheme != "http" or parts.port is None:
            raise ConfigurationError(
                f"{role.value} engines {url!r}: expected dns+http://name:port (a certificate is not of an address)"
            )
        self._url = url
        self._parts = parts
        self._role = role
        self._kv = kv
        self._resolve = resolve

    @property
    def name(self) -> str:
        return f"{self._role.value} {self._url}"

    async def look(self) -> Sequence[Found]:
        host = self._parts.hostname or ""
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError) as e:
            why = getattr(e, "strerror", None) or e
            raise SourceAway(f"{host} has no address now: {why}") from None
        return [Found(engine_of(self._at(address), self._role, self._kv)) for address in addresses]

    def _at(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return self._parts._replace(netloc=f"{host}:{self._parts.port}").geturl()
