"""`duet up` with real vLLM: what it prints works as pasted, and nothing is left, however it ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from common.ports import free_ports, require_free
from tests.processes import wait_for_end
from tests.running_up import RunningUp, running_up

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux"),
]

READY_WITHIN = 420.0
"""Seconds. Half a minute on two quiet cores, and several on busy ones."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model is made by the first start, and found by the second."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> Iterator[Callable[..., RunningUp]]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")

    def started(model: str = "tiny") -> RunningUp:
        command = [sys.executable, "-m", "cli.main", "up", "--model", model]
        it = running_up(command, tmp_path, free_ports(1)[0], DUET_CACHE_DIR=str(cache))
        return stack.enter_context(it)

    with ExitStack() as stack:
        yield started


def ready(up: RunningUp) -> list[int]:
    """Waits until it is; every process below it."""
    up.wait_until_it_says("Ctrl-C ends everything.", within=READY_WITHIN)
    below = up.below()
    assert len(below) > 4 * 3 + 2  # guards and commands of Valkey, two engines and the gateway, and the engine cores
    return below


def pasted(argv: list[str], said: str, begin: str, end: str) -> str:
    """What a part of the greeting prints when it is pasted into a program."""
    part = said[said.index(begin) : said.index(end)]
    done = subprocess.run(argv, input=part, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_prints_works_and_ctrl_c_leaves_nothing(start: Callable[[], RunningUp]) -> None:
    up = start()
    below = ready(up)
    if shutil.which("curl"):
        lines = pasted(["sh", "-s"], up.said(), "curl -N", "In Python").splitlines()
    else:
        lines = up.chat("tiny")
    assert sum(line.startswith("data: {") for line in lines) > 2
    assert [line for line in lines if line][-1] == "data: [DONE]"
    assert pasted([sys.executable, "-"], up.said(), "from openai", "Or: duet say").strip()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.said()
    wait_for_end(below, within=0.1)
    require_free("127.0.0.1", int(up.url.rsplit(":", 1)[1]))


def test_a_model_that_speaks_is_heard_and_leaves_nothing(start: Callable[..., RunningUp], tmp_path: Path) -> None:
    up = start("omni-tiny")
    below = ready(up)
    for name in ("prefill-1", "decode-1", "talker", "code2wav"):
        assert [line for line in up.said().splitlines() if line.startswith("done") and f"s  {name}" in line]
    say = [sys.executable, "-m", "cli.main", "say", "hello", "--url", up.url, "--max-tokens", "8", "--max-frames", "30"]
    out = tmp_path / "hello.wav"
    done = subprocess.run([*say, "-o", str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    print(done.stderr)
    with wave.open(str(out)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert 0 < len(sound) <= 30 * 1920 - 555
    assert sound.std() > 0.01 * 2**15
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.said()
    wait_for_end(below, within=0.1)
    assert [path.name for path in tmp_path.glob("duet-*")] == []


def test_killed_it_leaves_nothing(start: Callable[[], RunningUp]) -> None:
    up = start()
    below = ready(up)
    up.process.kill()
    up.process.wait()
    wait_for_end(below, within=30)
