"""Looking at processes: which run, and what is below them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from common.process.guard import descendants

WITHIN = 60.0
"""Seconds; long, because a machine that is busy with other things may take many of them."""


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(what: Callable[[], object], *, within: float = WITHIN) -> None:
    """Returns once `what` is true; fails after `within` seconds."""
    until = time.monotonic() + within
    while not what():
        assert time.monotonic() < until, f"not so within {within:g} s"
        time.sleep(0.01)


def wait_for_end(pids: Iterable[int], *, within: float = WITHIN) -> None:
    """Returns once none of them runs; fails after `within` seconds, naming those that do."""
    until = time.monotonic() + within
    while left := {pid: _command(pid) for pid in pids if alive(pid)}:
        assert time.monotonic() < until, f"still running after {within:g} s: {left}"
        time.sleep(0.01)


def kill(pids: Iterable[int]) -> None:
    """Each of them that still runs: a process may die of the one before it."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return ""


__all__ = ["alive", "descendants", "kill", "wait_for", "wait_for_end"]
