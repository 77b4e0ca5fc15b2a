"""The process between a parent and its command: `python -m common.process.guard GRACE COMMAND…`.

Standard library only. Its stdin is a pipe that nobody writes: EOF means that the parent is gone. It ends the command on
EOF, SIGTERM, SIGINT or SIGHUP: SIGTERM to the command's session, SIGKILL to every descendant left after GRACE seconds.
Its exit status is the command's (128 + n for signal n).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from common.process.parent import adopt_orphans, die_with_parent

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TICK = 0.5
"""Seconds between two looks at what is left, where nothing wakes the guard earlier."""


def main(argv: list[str]) -> int:
    grace, command = float(argv[0]), argv[1:]
    adopt_orphans()
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for sig in (*STOP, signal.SIGCHLD):
        signal.signal(sig, lambda *_: None)
    child = _start(command)
    status = _until_told(child, wake)
    return _end(child, status, grace, wake)


def _start(command: list[str]) -> int:
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        for sig in (*STOP, signal.SIGCHLD):
            signal.signal(sig, signal.SIG_DFL)
        die_with_parent(guard, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as e:
        os.write(2, f"{command[0]}: {e.strerror}\n".encode())
    os._exit(127)


def _until_told(child: int, wake: int) -> int | None:
    """Waits for the command's end (its wait status) or a reason to end it (None)."""
    told = False
    while not told:
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready and not os.read(0, 1024):
            told = True
        if wake in ready:
            seen = os.read(wake, 1024)
            told = told or any(sig in STOP for sig in seen)
        status = _reap(child)
        if status is not None:
            return status
    return None


def _end(child: int, status: int | None, grace: float, wake: int) -> int:
    """Ends what is left, and gives the exit status."""
    until = time.monotonic() + grace
    if status is None:
        _signal_group(child, signal.SIGTERM)
    for pid in descendants(os.getpid()) if status is not None else ():
        _signal(pid, signal.SIGTERM)  # the command is gone, and has left some behind
    while time.monotonic() < until and (status is None or descendants(os.getpid())):
        select.select([wake], [], [], TICK if status is None else 0.05)
        _drain(wake)
        status = _reap(child) if status is None else _reap_others(status)
    while left := descendants(os.getpid()):
        for pid in left:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.01)
        status = _reap(child) if status is None else _reap_others(status)
    return 128 + signal.SIGKILL if status is None else _exit_code(status)


def _reap(child: int) -> int | None:
    """Collects whatever has ended; the wait status of `child` if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _reap_others(status: int) -> int:
    _reap(-1)
    return status


def _drain(wake: int) -> None:
    try:
        os.read(wake, 1024)
    except BlockingIOError:
        return


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _signal(pid: int, sig: signal.Signals) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def _signal_group(pid: int, sig: signal.Signals) -> None:
    try:
        os.killpg(pid, sig)
    except (ProcessLookupError, PermissionError):
        _signal(pid, sig)


def descendants(root: int) -> list[int]:
    """Pids below `root` that still run, by /proc; empty where there is none."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
