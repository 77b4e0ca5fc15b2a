"""The admin port: what is served where, and that a gateway which ends does not wait for whoever watches it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from common.ports import free_ports
from tests.processes import wait_for

KEY = {"authorization": "Bearer a"}
WITHIN = 60.0
"""Seconds for whatever is waited for."""
ENDS_WITHIN = 25.0
"""Seconds from the signal to the end, however busy the machine: less than the 30 of shutdown_grace."""


@dataclass(frozen=True)
class Gateway:
    """A process; URLs of its two ports."""

    process: subprocess.Popen[bytes]
    clients: str
    admin: str


@pytest.fixture
def gateway(redis_url: str, tmp_path: Path) -> Iterator[Gateway]:
    ports = free_ports(2)
    command = [sys.executable, "-m", "cli.main", "gateway", "--port", str(ports[0]), "--admin-port", str(ports[1])]
    command += ["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2", "--redis-url", redis_url]
    env = {**os.environ, "DUET_REDIS_PREFIX": f"duet-test-{ports[0]}:", "DUET_ADMIN_KEY": "a"}
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(command, stderr=err, env=env, cwd=Path(__file__).parents[2]) as process,
    ):
        try:
            wait_for(lambda: answers(urls[0]), within=WITHIN)
            yield Gateway(process, *urls)
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez", timeout=WITHIN).status_code == 200
    except httpx.TransportError:
        return False


def test_each_port_serves_what_is_its_own_and_a_watcher_delays_no_end(gateway: Gateway) -> None:
    seen = {
        (name, path): httpx.get(url + path, headers=KEY, timeout=WITHIN).status_code
        for name, url in (("clients", gateway.clients), ("admin", gateway.admin))
        for path in ("/admin/topology", "/admin/ui", "/v1/models", "/v1/chat/completions", "/livez", "/administer")
    }
    assert {key: status for key, status in seen.items() if key[0] == "clients"} == {
        ("clients", "/admin/topology"): 404,
        ("clients", "/admin/ui"): 404,
        ("clients", "/v1/models"): 200,
        ("clients", "/v1/chat/completions"): 405,
        ("clients", "/livez"): 200,
        ("clients", "/administer"): 404,
    }
    assert {key: status for key, status in seen.items() if key[0] == "admin"} == {
        ("admin", "/admin/topology"): 200,
        ("admin", "/admin/ui"): 200,
        ("admin", "/v1/models"): 404,
        ("admin", "/v1/chat/completions"): 404,
        ("admin", "/livez"): 200,
        ("admin", "/administer"): 404,
    }
    with httpx.stream("GET", f"{gateway.admin}/admin/events", headers=KEY, timeout=WITHIN) as events:
        lines = events.iter_lines()
        assert next(lines) == "retry: 1000"
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line.startswith("data")] == []
    assert gateway.process.wait(WITHIN) == 0
    assert time.monotonic() - began < ENDS_WITHIN, "shutdown_grace is 30 s, and nothing is to be waited for"
