"""The guards between a parent and its command: `python -I -S guard.py GRACE COMMAND…`.

    parent ── pipe ──> outer guard ── pipe ──> inner guard ──> command ──> its children

A guard ends all that is below it when it is told to (SIGTERM, SIGINT, SIGHUP) or when the process above it is gone,
which it sees by EOF on its stdin, a pipe that nobody writes: SIGTERM first, SIGKILL after GRACE seconds. It adopts
orphans (Linux), so nothing below gets away. There are two so that either may be killed: the inner one sees EOF, the
outer one adopts what the inner one had. The exit status is the command's, 128 + n for signal n.

Run by its path, in an interpreter without site packages: it starts in a fraction of the time. So it imports the
standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SPARE = 2.0
"""Seconds that the outer guard gives the inner one beyond the grace time."""
TICK = 0.02
"""Seconds between two looks at processes that ended their parent."""


def main(argv: list[str]) -> int:
    grace, command = float(argv[0]), argv[1:]
    inner = Guard(grace, lambda: become(command))
    return Guard(grace + SPARE, inner.run).run()


class Guard:
    """Runs `body` in a child process. `body` returns an exit status, unless it becomes another program."""

    def __init__(self, grace: float, body: Callable[[], int]) -> None:
        self._grace = grace
        self._body = body
        self._child = -1
        self._status: int | None = None
        """The child's wait status, once it has ended."""
        self._wake = -1
        self._listening: list[int] = []

    def run(self) -> int:
        """Until the child has ended and nothing is left below; the exit status."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._listen()
        self._child = self._fork()
        while self._status is None and not self._wait(None):
            pass
        until = time.monotonic() + self._grace
        status = self._end_child(until)
        self._end_others(until)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _listen(self) -> None:
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for sig in (*STOP, signal.SIGCHLD):
            signal.signal(sig, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
        self._listening = [0, self._wake]

    def _fork(self) -> int:
        """The child's stdin is at EOF when this process is gone. A signal that comes before the child can take it
        waits until it can."""
        read, write = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
        child = os.fork()
        if child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
            os.close(read)
            return child
        try:
            os.close(write)
            os.dup2(read, 0)
            os.setsid()
            os._exit(self._body())
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)

    def _wait(self, seconds: float | None) -> bool:
        """Sleeps until something happens, and collects what has ended. Whether the child is to be ended."""
        ready, _, _ = select.select(self._listening, [], [], seconds)
        told = False
        if 0 in ready and not os.read(0, 1024):
            self._listening.remove(0)
            told = True
        if self._wake in ready:
            told = any(sig in STOP for sig in os.read(self._wake, 1024)) or told
        self._reap()
        return told

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._status = status

    def _end_child(self, until: float) -> int:
        if self._status is None:
            _signal_group(self._child, signal.SIGTERM)
        while self._status is None:
            left = until - time.monotonic()
            if left <= 0:
                _signal_group(self._child, signal.SIGKILL)
            self._wait(left if left > 0 else TICK)
        return self._status

    def _end_others(self, until: float) -> None:
        """What the child has left behind. There is nothing to see of it where there is no /proc."""
        for pid in descendants(os.getpid()):
            _signal(pid, signal.SIGTERM)
        while left := descendants(os.getpid()):
            if time.monotonic() >= until:
                for pid in left:
                    _signal(pid, signal.SIGKILL)
            self._wait(TICK)


def become(command: list[str]) -> int:
    """Turns this process into the command. Returns only if that cannot be."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # if both guards are killed at once
    for sig in (*STOP, signal.SIGCHLD):
        signal.signal(sig, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        os.write(2, f"{command[0]}: {e.strerror}\n".encode())
    return 127


def prctl(option: int, value: int) -> bool:
    """prctl(2); False where there is none."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def descendants(root: int) -> list[int]:
    """Pids below `root` that still run, by /proc; empty where there is none."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                text = stat.read()
        except OSError:  # it has just ended
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(name)] = int(parent)
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def _signal(pid: int, sig: signal.Signals) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def _signal_group(leader: int, sig: signal.Signals) -> None:
    """To the session's first group; to the leader alone while it has not made its session yet."""
    try:
        os.killpg(leader, sig)
    except (ProcessLookupError, PermissionError):
        _signal(leader, sig)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
