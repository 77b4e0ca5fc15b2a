"""Ending with one's own parent."""

from __future__ import annotations

import os
import signal

from common.process.guard import PR_SET_PDEATHSIG, prctl


def die_with_parent(parent: int, sig: signal.Signals = signal.SIGTERM) -> bool:
    """Asks Linux for `sig` when the parent process ends. False elsewhere: there it does nothing.

    `parent` is its pid as it was known before. If that one is gone already, `sig` is raised at once. Linux means the
    thread that started this process: its end counts as the parent's.
    """
    if not prctl(PR_SET_PDEATHSIG, sig):
        return False
    if os.getppid() != parent:
        os.kill(os.getpid(), sig)
    return True
