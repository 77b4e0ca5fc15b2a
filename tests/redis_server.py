"""A real Redis or Valkey for tests, and what they need to look at it.

| `redis_url` is | if |
| --- | --- |
| `DUET_TEST_REDIS_URL` | it is set; keys are made under a prefix of the test's own, and removed |
| a container of Redis 7.0, the floor | a Docker engine answers |
| the embedded Valkey | else |
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import BlockingConnectionPool, Redis

from common.valkey import EmbeddedValkey

IMAGE = "redis:7.0"
DOCKER_SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of one server for the whole run."""
    with _server() as url:
        yield url


@contextmanager
def _server() -> Iterator[str]:
    if given := os.environ.get("DUET_TEST_REDIS_URL"):
        yield given
    elif docker_answers(os.environ.get("DOCKER_HOST", f"unix://{DOCKER_SOCKET}")):
        from testcontainers.core.container import DockerContainer

        with DockerContainer(IMAGE).with_exposed_ports(6379) as container:
            yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"
    else:
        with EmbeddedValkey() as valkey:
            yield valkey.url


def docker_answers(host: str) -> bool:
    """Whether a Docker engine answers at `unix://…` or `tcp://…` within a second. Anything else is a no."""
    parts = urlsplit(host)
    if parts.scheme not in ("unix", "tcp"):
        return False
    family, address = (
        (socket.AF_UNIX, parts.path)
        if parts.scheme == "unix"
        else (socket.AF_INET, (parts.hostname or "localhost", parts.port or 2375))
    )
    with socket.socket(family) as s:
        s.settimeout(1.0)
        try:
            s.connect(address)
            s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in s.recv(64)
        except OSError:
            return False


@asynccontextmanager
async def scratch_prefix(url: str) -> AsyncIterator[str]:
    """What one test's keys start with; they are removed after it."""
    prefix = f"duet-test-{secrets.token_hex(6)}:"
    async with Redis.from_url(url, decode_responses=True) as client:
        yield prefix
        if keys := await keys_under(client, prefix):
            await client.delete(*keys)


async def keys_under(client: Any, prefix: str) -> list[str]:
    return [key async for key in client.scan_iter(match=f"{prefix}*", count=1000)]


class Trips:
    """How often a client wrote to its server since `reset`. One write that is answered is one round trip."""

    def __init__(self) -> None:
        self.count = 0

    def reset(self) -> None:
        self.count = 0


def counting_client(url: str) -> tuple[Redis, Trips]:
    """A client for one connection at a time, beside one that listens, and its count. The first command on a connection
    costs its handshake."""
    trips = Trips()
    pool = BlockingConnectionPool.from_url(url, max_connections=2, timeout=5.0, decode_responses=True)
    base = pool.connection_class

    class Counting(base):  # type: ignore[misc, valid-type]
        async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
            trips.count += 1
            await super().send_packed_command(command, check_health)

    pool.connection_class = Counting
    client = Redis(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client, trips
