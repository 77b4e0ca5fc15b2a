"""One child process with a log file of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""


class Child:
    """Runs under a guard, in a session of its own: a Ctrl-C in the terminal does not reach it, its parent's end does.

    stdout and stderr go to `log`. Start it from a thread that lives as long as the child should.
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
        """`env` is added to this process's environment."""
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = {**os.environ, **(env or {})}
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Child:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "common.process.guard", str(self._grace), *self.command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The guard's; the command is below it."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.wait(timeout)

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting; so that several can end at the same time."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int | None:
        """Ends it and waits for that: at most the grace time and what SIGKILL takes. Safe to call again."""
        if self._process is None:
            return None
        self.ask_to_stop()
        try:
            code = self._process.wait(self._grace + 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as text:
                return "".join(deque(text, maxlen=lines)).rstrip()
        except FileNotFoundError:
            return ""

    def __enter__(self) -> Child:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
