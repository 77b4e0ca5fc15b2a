"""`python -m tests.cases [options of run.py]`: every case against Duet, with every surface that it offers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from common.valkey import EmbeddedValkey

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "tests" / "cases.command"
"""Line 1 for NIXL, line 2 for Mooncake. What they set, the cases must be told:"""
FACTS = (
    "body_limit=1048576",
    "engine_key=sk-engines",
    'register=POST /admin/engines {"url":"%URL%","role":"decode","identity":{"tensor_parallel_size":%TP%}}',
)


def run(more: Sequence[str]) -> int:
    """The runner's exit status: 0 if no case failed. Two gateways at once share `DUET_REDIS_URL`, or a Valkey of ours."""
    nixl, mooncake = COMMANDS.read_text().splitlines()
    arguments = ["--command", nixl, "--command-mooncake", mooncake, "--replica"]
    for fact in FACTS:
        arguments += ["--opt", fact]
    with ExitStack() as stack:
        environment = dict(os.environ)
        if not environment.get("DUET_REDIS_URL"):
            environment["DUET_REDIS_URL"] = stack.enter_context(EmbeddedValkey()).url
        results = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "results.json"
        runner = [sys.executable, str(ROOT / "tests" / "cases" / "run.py"), *arguments, "--json", str(results), *more]
        with subprocess.Popen(runner, cwd=ROOT, env=environment) as process:
            try:
                return process.wait()
            finally:
                process.terminate()  # the runner ends its engines and gateways then


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    sys.exit(run(sys.argv[1:]))
