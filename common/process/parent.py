"""Ending with one's own parent."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

from common.process.guard import PR_SET_PDEATHSIG, prctl

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at who the parent is."""
GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""


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


def watch_parent(parent: int, *, grace: float = GRACE) -> None:
    """Ends this process when its parent is no longer `parent`: by SIGTERM, and by SIGKILL `grace` seconds later.

    A thread looks now and then: whatever thread of the parent started this process may end, as it may not with
    `die_with_parent`.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        log.warning("process %d ends: %d, which started it, is gone", os.getpid(), parent)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="duet-parent", daemon=True).start()
