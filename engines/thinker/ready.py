"""Waiting until an engine answers, and saying why it does not. Nothing is started again."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from common.process import Child
from engines.thinker.errors import EngineStartFailed

READY_WITHIN = 300.0
"""Seconds, for a big model on a slow disk."""
LOOK_EVERY = 0.25

_PHASES = (
    (re.compile(r"Starting vLLM server|Started server process|Application startup"), "serving"),
    (re.compile(r"init engine \("), "warmed up"),
    (re.compile(r"Capturing CUDA graph"), "capturing CUDA graphs"),
    (re.compile(r"KV cache size:"), "KV cache"),
    (re.compile(r"Loading weights took|Model loading took"), "weights are in"),
    (re.compile(r"Starting to load model|Loading safetensors"), "weights"),
    (re.compile(r"Initializing a V1 LLM engine"), "engine core"),
    (re.compile(r"Resolved architecture"), "configuration"),
    (re.compile(r"vLLM API server version|█.*version \d"), "starting"),
)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""An engine is asked without the proxy that the environment may name."""


def phase_of(line: str) -> str | None:
    """What a line of vLLM's log says about how far its start has come; None if nothing."""
    return next((phase for pattern, phase in _PHASES if pattern.search(line)), None)


def answers(url: str) -> bool:
    """Whether `/health` is 200 now."""
    try:
        with _DIRECT.open(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, HTTPException):
        return False


class Readiness:
    """Waits for one child that serves HTTP, a look at a time, so that one loop can wait for several."""

    def __init__(self, child: Child, url: str, *, within: float = READY_WITHIN) -> None:
        """`within` in seconds, from now."""
        self.child = child
        self.url = url
        self._within = within
        self._until = time.monotonic() + within

    def look(self) -> bool:
        """Whether it answers `/health`. Raises EngineStartFailed if it has ended or its time is over."""
        code = self.child.poll()
        if code is not None:  # first: something else may answer on a port that this child did not get
            raise self._failed(f"ended with status {code}")
        if answers(self.url):
            return True
        if time.monotonic() > self._until:
            raise self._failed(f"did not answer {self.url}/health within {self._within:g} s")
        return False

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Looks until it answers, or until `stopped` says that nobody waits any more. Raises as `look` does."""
        while not self.look() and not stopped():
            time.sleep(LOOK_EVERY)

    def _failed(self, how: str) -> EngineStartFailed:
        child = self.child
        return EngineStartFailed(f"{child.name} {how}; the end of {child.log}:\n{child.tail(30)}")
