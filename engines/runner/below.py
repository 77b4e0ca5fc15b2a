"""All that a server has started, orphans too, and their end."""

from __future__ import annotations

from contextlib import suppress

import psutil

from common.process.guard import PR_SET_CHILD_SUBREAPER, prctl

GRACE = 3.0
"""Seconds from SIGTERM to SIGKILL, and from there until no more is waited for. vLLM has given its processes 5 by then,
and whoever ends the server gives it 10 in all (`common/process`)."""
TRACKER = "from multiprocessing.resource_tracker import main"
"""In its command line, as what it is to run. It heeds no SIGTERM, and ends with those whose resources it tracks."""


def adopt_orphans() -> None:
    """An engine core's workers stay below this process when the core ends before them. Linux only."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_all_below() -> None:
    """Ends what runs below this process, and waits for that."""
    found = [process for process in psutil.Process().children(recursive=True) if not _is_tracker(process)]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stuck = psutil.wait_procs(found, GRACE)
    for process in stuck:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stuck, GRACE)


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any(TRACKER in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False
