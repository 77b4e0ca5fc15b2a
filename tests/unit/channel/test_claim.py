"""An `ipc` endpoint belongs to one producer that lives; what is left of it afterwards is nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.channel.claim import Claim, lock_of, path_of
from common.channel.errors import ChannelError

ROOT = Path(__file__).parents[3]
KILLED = """
import os, signal, sys
from common.channel import Publisher
Publisher("ipc://" + sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    first = Claim(path)
    with pytest.raises(ChannelError, match=f"channel endpoint 'ipc://{path}': another producer is there, and lives"):
        Claim(path)
    listen(path)
    first.release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    Claim(path).release()
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_one_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KILLED, str(path)], env=environment, check=False)
    assert path.is_socket()
    assert lock_of(path).exists()
    Claim(path).release()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_socket_is_let_be(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("somebody's")
    with pytest.raises(ChannelError, match="what is there is no socket"):
        Claim(path)
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("rows", "somebody's")]


def test_what_is_another_s_by_now_is_let_be(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    first = Claim(path)
    lock_of(path).unlink()  # by somebody who tidies up
    second = Claim(path)
    listen(path)
    first.release()
    assert path.is_socket()
    assert lock_of(path).exists()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"rows\.lock: No such file"):
        Claim(tmp_path / "no" / "rows")
    (tmp_path / "rows.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ChannelError, match=r"rows\.lock: "):
        Claim(tmp_path / "rows")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_is_no_place(tmp_path: Path) -> None:
    for path in (Path("/"), tmp_path):
        with pytest.raises(ChannelError, match="what is there is no socket"):
            Claim(path)
    assert not lock_of(tmp_path).exists()


@pytest.mark.parametrize(
    ("endpoint", "path"), [("ipc:///run/x", Path("/run/x")), ("ipc://@x", None), ("tcp://h:1", None), ("", None)]
)
def test_only_a_file_has_a_path(endpoint: str, path: Path | None) -> None:
    assert path_of(endpoint) == path
