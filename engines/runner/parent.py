"""vLLM's processes end with the one that started them.

A server that is killed cannot tell its engine core, which then waits for it for ever, and its workers with it: they
keep their memory, and the channel's port. vLLM starts them by `multiprocessing`; one that was started otherwise, by
hand or by Ray, is let be.
"""

from __future__ import annotations

import multiprocessing
import os
from functools import cache
from multiprocessing.util import register_after_fork

from common.process import watch_parent


@cache
def end_with_parent() -> None:
    """This process, and those that it forks: vLLM loads its plugins in a process that was spawned, not in one that was
    forked from a process that has them. May be called more than once."""
    register_after_fork(end_with_parent, lambda _: _watch())
    _watch()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        watch_parent(os.getppid() if parent.is_alive() else parent.pid)
