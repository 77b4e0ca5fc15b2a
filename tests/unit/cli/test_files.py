from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cli.files import expect_writable, write_whole
from cli.http import Refused


def test_a_new_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    expect_writable(out)
    assert list(tmp_path.iterdir()) == []
    write_whole(out, b"new")
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(out, b"new")]
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert out.stat().st_mode == plain.stat().st_mode


def test_a_link_is_followed(tmp_path: Path) -> None:
    link, out = tmp_path / "link", tmp_path / "out"
    link.symlink_to(out)
    for data in (b"first", b"second"):
        expect_writable(link)
        write_whole(link, data)
        assert link.is_symlink()
        assert out.read_bytes() == data


def test_what_cannot_be_whole_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"older")
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", _half)
        with pytest.raises(Refused, match="out cannot be written: No space left on device"):
            write_whole(out, b"newer")
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(out, b"older")]


def _half(path: Path, data: bytes) -> int:
    """As on a disk that is full."""
    with path.open("wb") as file:
        file.write(data[:2])
    raise OSError(28, os.strerror(28))


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    expect_writable(pipe)
    write_whole(pipe, b"sound")
    reader.join(30)
    assert got == [b"sound"]
    assert pipe.is_fifo()


def test_a_device_stays_one() -> None:
    expect_writable(Path("/dev/null"))
    write_whole(Path("/dev/null"), b"sound")
    assert Path("/dev/null").is_char_device()
