"""`duet up` with simulated engines: how it starts, what it says, and what it leaves behind, which is nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from cli.local.signals import SAME
from common.ports import free_ports
from tests.processes import wait_for, wait_for_end
from tests.running_up import RunningUp, running_up

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux"),
    pytest.mark.timeout(300),
]

Start = Callable[..., RunningUp]
READY = "Ready. To try it:"
GRACE = "12"
"""Seconds that `stuck` engines are given where a second signal must come before they are killed."""


def command(kind: str, model: Path) -> list[str]:
    return [sys.executable, "-m", "tests.integration.up_simulated", kind, "--device", "cpu", "--model", str(model)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    return tmp_path / "m"


@pytest.fixture
def start(tmp_path: Path, model: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(kind: str, **env: str) -> RunningUp:
            it = running_up(command(kind, model), tmp_path, free_ports(1)[0], DUET_CACHE_DIR=str(tmp_path), **env)
            return stack.enter_context(it)

        yield start


def ready(up: RunningUp) -> list[int]:
    return up.ready(2, within=60)


def ended(up: RunningUp, below: list[int], status: int) -> None:
    up.ended(below, status, within=30)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_leaves_nothing(start: Start, sig: signal.Signals, tmp_path: Path) -> None:
    up = start("sim")
    below = ready(up)
    for step in ("model", "valkey", "prefill-1", "decode-1", "gateway"):
        assert [line for line in up.said().splitlines() if line.startswith("done") and f"s  {step}" in line]
    assert READY in up.said()
    lines = up.chat("m")
    assert len(lines) > 2
    assert lines[-1] == "data: [DONE]"
    up.process.send_signal(sig)
    ended(up, below, 0)
    assert up.said().endswith("\nStopping.\n")
    assert list(tmp_path.glob("duet-valkey-*")) == []


def test_killed_it_leaves_nothing(start: Start) -> None:
    up = start("sim")
    below = ready(up)
    up.process.kill()
    assert up.process.wait() == -signal.SIGKILL
    wait_for_end(below, within=20)


def test_a_part_that_ends_is_named_and_everything_ends(start: Start) -> None:
    up = start("sim")
    below = ready(up)
    (engine,) = [pid for pid in below if is_engine(pid, up.said(), "decode-1")]
    os.kill(engine, signal.SIGKILL)
    ended(up, below, 1)
    assert "duet: decode-1 ended with status 137; the end of " in up.said()


def is_engine(pid: int, said: str, name: str) -> bool:
    """Whether this is the engine itself, by the port that the checklist named, and not its guard."""
    url = next(line for line in said.splitlines() if line.startswith("done") and f"s  {name}" in line)
    port = url.rstrip(")").rsplit(":", 1)[1]
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return port in argv and argv[1:3] == ["-m", "engines.sim"]


def test_an_engine_that_does_not_start_is_quoted(start: Start) -> None:
    up = start("broken")
    assert up.process.wait(60) == 1
    assert "failed" in up.said()
    assert "duet: decode-1 ended with status 3; the end of " in up.said()
    assert up.said().endswith("no weights\n")
    assert "Ready" not in up.said()


def test_an_engine_that_ends_while_another_starts_is_noticed(start: Start) -> None:
    up = start("fleeting")
    assert up.process.wait(60) == 1
    assert "duet: prefill-1 ended with status 4; the end of " in up.said()
    assert "Ready" not in up.said()


def test_a_model_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    with running_up(command("sim", Path("tiny")), tmp_path, free_ports(1)[0], DUET_CACHE_DIR=str(tmp_path)) as up:
        assert up.process.wait(60) == 1
        assert "duet: the model 'tiny' could not be made; the end of " in up.said()
        assert up.said().endswith("No module named tests.there_is_no_such_module\n")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_starts(start: Start, sig: signal.Signals) -> None:
    up = start("stuck")
    up.wait_until_it_says("valkey", within=30)
    wait_for(lambda: len(up.below()) == 3 * 3, within=30)
    below = up.below()
    up.process.send_signal(sig)
    ended(up, below, 0)
    assert "Ready" not in up.said()


def test_one_signal_that_comes_twice_is_one(start: Start) -> None:
    up = start("stuck")
    wait_for(lambda: len(up.below()) == 3 * 3, within=30)
    below = up.below()
    for sig in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):  # so that both are there at once
        up.process.send_signal(sig)
    ended(up, below, 0)


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    up = start("stuck", UP_SIMULATED_GRACE=GRACE)
    wait_for(lambda: len(up.below()) == 3 * 3, within=30)
    below = up.below()
    up.process.send_signal(signal.SIGINT)
    up.wait_until_it_says("Stopping.", within=60)
    time.sleep(SAME + 0.1)  # sooner it would be the first one again
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == -signal.SIGINT
    wait_for_end(below, within=60)


def test_a_port_that_is_taken_is_noticed_before_anything_starts(tmp_path: Path, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [*command("stuck", model), "--port", str(port)]
        env = {**os.environ, "DUET_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"duet: port {port} on 127.0.0.1 cannot be used: Address already in use")
    assert done.stdout == ""


def test_it_ends_with_its_parent_if_it_is_told_to(tmp_path: Path, model: Path) -> None:
    (port,) = free_ports(1)
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    parent = [sys.executable, "-c", code, *command("stuck", model)]
    env = {"DUET_DIE_WITH_PARENT": "1", "DUET_CACHE_DIR": str(tmp_path)}
    below: list[int] = []
    started: AbstractContextManager[RunningUp] = running_up(parent, tmp_path, port, **env)
    with started as up:
        wait_for(lambda: len(up.below()) == 1 + 3 * 3, within=30)
        below = up.below()
        up.process.kill()
        up.process.wait()
        wait_for_end(below, within=20)
        assert up.said().endswith("Stopping.\n")
