"""What a publisher that was killed leaves is removed by its engine's server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engines.channel import BIND, ENDPOINT, remove_socket

KILLED = """
import os, signal
from engines.channel import publisher
publisher()
os.kill(os.getpid(), signal.SIGKILL)
"""
ROOT = Path(__file__).parents[3]


def test_the_socket_of_a_killed_publisher_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    monkeypatch.setenv(ENDPOINT, f"ipc://{path}")
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert path.is_socket()
    remove_socket()
    assert not path.exists()
    remove_socket()


@pytest.mark.parametrize("endpoint", [None, "tcp://127.0.0.1:7100", "ipc://{file}"])
def test_nothing_else_is_touched(endpoint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("not ours")
    monkeypatch.delenv(BIND, raising=False)
    monkeypatch.delenv(ENDPOINT, raising=False)
    if endpoint is not None:
        monkeypatch.setenv(ENDPOINT, endpoint.format(file=file))
    remove_socket()
    assert file.exists()
