"""When to stop: Ctrl-C, SIGTERM, or the terminal's end."""

from __future__ import annotations

import signal
import time
from types import FrameType

SAME = 0.5
"""Seconds within which a second signal is the first one again: what a terminal sends to a whole process group, some
parents pass on once more."""


class StopSignal:
    """The first signal asks for an orderly end. A second one ends this process at once, and with it its children."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def asked(self) -> bool:
        return self._since is not None

    def listen(self) -> None:
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, self._ask)

    def _ask(self, sig: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._since > SAME:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
