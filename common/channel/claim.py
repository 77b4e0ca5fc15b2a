"""Whose an `ipc` endpoint is. ZeroMQ binds over another's socket without a word, so a lock beside it tells.

The lock is on `SOCKET.lock`, which its holder keeps open: it ends with its holder, however that ends. Whoever holds it
owns the socket: it may take over what a dead one left there, and removes both when it is done.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from common.channel.errors import ChannelError

IPC = "ipc://"
SUFFIX = ".lock"


class Claim:
    """On the socket at `path`. Raises ChannelError if a live producer has it, if what is there is no socket, or if no
    lock can be made beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = lock_of(path)
        self._file = -1
        try:
            self._file = _locked(self._lock)
        except BlockingIOError:
            raise _refused(path, "another producer is there, and lives") from None
        except OSError as e:
            raise _refused(path, f"{self._lock.name}: {e.strerror}") from None
        if os.path.lexists(path) and not path.is_socket():
            self._let_go()
            raise _refused(path, "what is there is no socket")

    def release(self) -> None:
        """Removes the socket and the lock, unless somebody took the lock away meanwhile. May be called twice."""
        if self._file >= 0 and _is(self._file, self._lock):
            self._path.unlink(missing_ok=True)
        self._let_go()

    def _let_go(self) -> None:
        if self._file < 0:
            return
        if _is(self._file, self._lock):
            self._lock.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1


def path_of(endpoint: str) -> Path | None:
    """Of an `ipc` endpoint's socket; None for one that is no file."""
    path = endpoint.removeprefix(IPC)
    return Path(path) if endpoint.startswith(IPC) and path.startswith("/") else None


def lock_of(path: Path) -> Path:
    return Path(f"{path}{SUFFIX}")


def _locked(path: Path) -> int:
    """The open file at `path`, locked. Raises BlockingIOError if another has the lock, OSError."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        if _is(file, path):
            return file
        os.close(file)  # its holder removed it between the two


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _refused(path: Path, why: str) -> ChannelError:
    return ChannelError(f"channel endpoint '{IPC}{path}': {why}")
