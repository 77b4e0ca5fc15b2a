"""When to stop: Ctrl-C, SIGTERM, or the terminal's end."""

from __future__ import annotations

import signal
from types import FrameType


class StopSignal:
    """The first signal asks for an orderly end. A second one ends this process at once, and with it its children."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, self._ask)

    def _ask(self, sig: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.asked = True
