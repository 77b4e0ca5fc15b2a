"""What a publisher that was killed leaves is removed by its engine's server; what another has is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engines.channel import BIND, ENDPOINT, remove_socket

KILLED = """
import os, signal
from engines.channel import publisher
publisher()
os.kill(os.getpid(), signal.SIGKILL)
"""
LIVING = """
import time
from engines.channel import publisher
publisher()
print("up", flush=True)
time.sleep(60)
"""
ROOT = Path(__file__).parents[3]


def test_the_socket_of_a_killed_publisher_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    monkeypatch.setenv(ENDPOINT, f"ipc://{path}")
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert path.is_socket()
    remove_socket()
    assert list(tmp_path.iterdir()) == []
    remove_socket()


def test_a_publisher_that_lives_keeps_its_socket_until_it_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    monkeypatch.setenv(ENDPOINT, f"ipc://{path}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", LIVING], env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            remove_socket(within=0.0)
            assert path.is_socket()
            waiting = threading.Thread(target=remove_socket, args=(30.0,))
            waiting.start()
        finally:
            child.kill()
    waiting.join(30.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("endpoint", [None, "tcp://127.0.0.1:7100", "ipc://{file}"])
def test_nothing_else_is_touched(endpoint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("not ours")
    monkeypatch.delenv(BIND, raising=False)
    monkeypatch.delenv(ENDPOINT, raising=False)
    if endpoint is not None:
        monkeypatch.setenv(ENDPOINT, endpoint.format(file=file))
    remove_socket()
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
