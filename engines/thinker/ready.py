"""Waiting until an engine answers, and saying why it does not. Nothing is started again."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from common.process import Child
from engines.thinker.errors import EngineStartFailed

READY_WITHIN = 300.0
"""Seconds, for a big model on a slow disk."""
LOOK_EVERY = 0.25

_PHASES = (
    (re.compile(r"Started server process|Application startup|Starting vLLM API server \d|Uvicorn running"), "serving"),
    (re.compile(r"init engine|KV cache size|GPU KV cache|kv cache"), "KV cache"),
    (re.compile(r"Loading weights took|Model loading took"), "weights are in"),
    (re.compile(r"Loading safetensors|Starting to load model"), "weights"),
    (re.compile(r"Initializing a V1 LLM engine|EngineCore"), "engine core"),
    (re.compile(r"vLLM API server version|version \d"), "starting"),
)


def phase_of(line: str) -> str | None:
    """What a line of vLLM's log says about how far its start has come; None if nothing."""
    return next((phase for pattern, phase in _PHASES if pattern.search(line)), None)


def answers(url: str) -> bool:
    """Whether `/health` is 200 now."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Readiness:
    """Waits for one child that serves HTTP, a look at a time, so that one loop can wait for several."""

    def __init__(self, child: Child, url: str, *, within: float = READY_WITHIN) -> None:
        """`within` in seconds, from now."""
        self.child = child
        self._url = url
        self._within = within
        self._until = time.monotonic() + within

    def look(self) -> bool:
        """Whether it answers `/health`. Raises EngineStartFailed if it has ended or its time is over."""
        if answers(self._url):
            return True
        code = self.child.poll()
        if code is not None:
            raise self._failed(f"ended with status {code}")
        if time.monotonic() > self._until:
            raise self._failed(f"did not answer {self._url}/health within {self._within:g} s")
        return False

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Looks until it answers, or until `stopped` says that nobody waits any more. Raises as `look` does."""
        while not self.look() and not stopped():
            time.sleep(LOOK_EVERY)

    def _failed(self, how: str) -> EngineStartFailed:
        child = self.child
        return EngineStartFailed(f"{child.name} {how}; the end of {child.log}:\n{child.tail(30)}")
