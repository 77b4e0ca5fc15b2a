"""A running `duet up`, for the tests that start one and end it in every way."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.ports import require_free
from tests.processes import descendants, kill, wait_for, wait_for_end


class RunningUp:
    """`duet up` on a port of its own. Its outputs are in one file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, port: int) -> None:
        self.process = process
        self.output = output
        self.url = f"http://127.0.0.1:{port}"

    def said(self) -> str:
        return self.output.read_text()

    def wait_until_it_says(self, what: str, *, within: float) -> None:
        wait_for(lambda: what in self.said() or self.process.poll() is not None, within=within)
        assert what in self.said(), self.said()

    def below(self) -> list[int]:
        """Every process below it."""
        return descendants(self.process.pid)

    def ready(self, engines: int, *, within: float) -> list[int]:
        """Waits until it is; every process below it."""
        self.wait_until_it_says("Ctrl-C ends everything.", within=within)
        below = self.below()
        assert len(below) == (2 + engines) * 3  # two guards and a command for Valkey, the gateway and each engine
        return below

    def ended(self, below: list[int], status: int, *, within: float) -> None:
        """It ends with that status, and leaves neither a process nor its port."""
        assert self.process.wait(within) == status, self.said()
        wait_for_end(below, within=0.1)
        require_free("127.0.0.1", int(self.url.rsplit(":", 1)[1]))

    def chat(self, model: str, **more: Any) -> list[str]:
        """The lines of one streamed answer, asked for as the printed curl line does, and with `more` in the body."""
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": model, "stream": True, "max_tokens": 4, "messages": messages, **more}
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return [line.decode().strip() for line in reply if line.strip()]


@contextmanager
def running_up(command: Sequence[str], folder: Path, port: int, **env: str) -> Iterator[RunningUp]:
    """Leaving kills it and what is below it, should anything be left: the tests look at that before."""
    output = folder / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "TMPDIR": str(folder), **env},
        )
    up = RunningUp(process, output, port)
    try:
        yield up
    finally:
        if process.poll() is None:
            kill((*up.below(), process.pid))
        process.wait()
