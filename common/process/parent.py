"""What Linux does for parents and children, by prctl(2). Elsewhere these do nothing and say so by returning False."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, sig: signal.Signals = signal.SIGTERM) -> bool:
    """Asks for `sig` when the parent process ends; `parent` is its pid as known before, to see a parent that is gone
    already: then the signal is raised at once."""
    if not _prctl(_PR_SET_PDEATHSIG, sig):
        return False
    if os.getppid() != parent:
        os.kill(os.getpid(), sig)
    return True


def adopt_orphans() -> bool:
    """Makes this process the new parent of descendants whose own parent ends."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
