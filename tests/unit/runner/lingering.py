"""An engine core that outlives the call to end it, and then has something to say."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

from engines.runner.parent import end_with_parent

CONTEXT = get_context("spawn")
LATER = 1.5
"""Seconds."""


def start(kind: str) -> None:
    """Returns when it is there and ready."""
    ready, told = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=linger, args=(kind, told))
    process.start()
    assert ready.recv() == kind
    if kind == "orphan":
        process.join()


def linger(kind: str, told: Connection) -> None:
    """`slow` ends some time after SIGTERM, `deaf` never, and both see the end of their parent. `orphan` ends at once
    and leaves one that is slow."""
    if kind == "orphan":
        start("slow")
        told.send(kind)
        os._exit(1)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda sig, _: ended.append(sig))
    end_with_parent()
    told.send(kind)
    while kind == "deaf" or not ended:
        time.sleep(0.01)
    time.sleep(LATER)
    print("the engine core's own end", file=sys.stderr, flush=True)
