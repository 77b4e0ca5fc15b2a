"""One child process with a log file of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.errors import ConfigurationError

GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""
SPARE = 10.0
"""Seconds beyond the grace time until the guards themselves are given up."""
TAIL_BYTES = 64 * 1024
"""How far back `tail` looks."""

_GUARD = Path(__file__).with_name("guard.py")


class Child:
    """Runs under guards, in a session of its own: a Ctrl-C in the terminal does not reach it, its parent's end does.

    stdout and stderr go to `log`. A process that is forked from this one without exec holds the pipe that the guards
    watch, and puts the end off until it ends too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        grace: float = GRACE,
    ) -> None:
        """`env` is added to this process's environment, and wins. `grace` is in seconds."""
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = {**os.environ, **(env or {})}
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Child:
        """A command that cannot be run is one that ends with 127 and says why in its log.

        Raises ConfigurationError if the log cannot be written.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            out = self.log.open("ab")
        except OSError as e:
            raise ConfigurationError(f"{self.name}: the log {self.log} cannot be written: {e.strerror}") from None
        with out:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self._grace), *self.command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The outer guard's; the command is two levels below it."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, 128 + n for signal n; None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.wait(timeout)

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting: several can then end at the same time."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int | None:
        """Ends it and waits for that, the grace time and a little more at most; its status. Safe to call again."""
        if self._process is None:
            return None
        self.ask_to_stop()
        try:
            code = self._process.wait(self._grace + SPARE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log; empty if there is none."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Child:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
