"""`duet up` with real vLLM: what it prints works as pasted, and nothing is left, however it ends."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.ports import require_free
from engines.code2wav.geometry import Geometry
from tests.ports import own_ports
from tests.processes import wait_for_end
from tests.running_up import RunningUp, running_up

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux"),
]

READY_WITHIN = 420.0
"""Seconds. Half a minute on two quiet cores, and several on busy ones."""
ENDED_WITHIN = 180.0
"""Seconds from Ctrl-C to the end."""
DEPLOY = Path(__file__).parents[2] / "deploy"
FRAMES = 30
SPOKEN = {
    "modalities": ["text", "audio"],
    "audio": {"voice": "chelsie", "format": "pcm16", "sampling": {"max_frames": FRAMES}},
    "stream_options": {"include_usage": True},
}
"""Random weights end when they like, so the answer is asked how many frames it has."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model is made by the first start, and found by the second."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def temp() -> Iterator[Path]:
    """The temporary folder of what is started. Its name is short: sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="up-") as made:
        yield Path(made)


@pytest.fixture
def start(tmp_path: Path, cache: Path, temp: Path) -> Iterator[Callable[..., RunningUp]]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")

    def started(*flags: str) -> RunningUp:
        command = [sys.executable, "-m", "cli.main", "up", *(flags or ("--model", "tiny"))]
        it = running_up(command, tmp_path, own_ports(1)[0], DUET_CACHE_DIR=str(cache), TMPDIR=str(temp))
        return stack.enter_context(it)

    with ExitStack() as stack:
        yield started


def ready(up: RunningUp) -> list[int]:
    """Waits until it is; every process below it."""
    up.wait_until_it_says("Ctrl-C ends everything.", within=READY_WITHIN)
    below = up.below()
    assert len(below) > 4 * 3 + 2  # guards and commands of Valkey, two engines and the gateway, and the engine cores
    return below


def left(temp: Path) -> list[str]:
    """What is in the temporary folder afterwards, but for what torch keeps there for the next start."""
    return sorted(path.name for path in temp.iterdir() if not path.name.startswith("torchinductor_"))


def pasted(argv: list[str], said: str, begin: str, end: str) -> str:
    """What a part of the greeting prints when it is pasted into a program."""
    part = said[said.index(begin) : said.index(end)]
    done = subprocess.run(argv, input=part, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_prints_works_and_ctrl_c_leaves_nothing(start: Callable[[], RunningUp], temp: Path) -> None:
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
    assert up.process.wait(ENDED_WITHIN) == 0, up.said()
    wait_for_end(below, within=0.1)
    require_free("127.0.0.1", int(up.url.rsplit(":", 1)[1]))
    assert left(temp) == []


def test_a_deploy_file_is_started_and_answers_with_text_and_sound(
    start: Callable[..., RunningUp], cache: Path, temp: Path
) -> None:
    up = start("--topology", str(DEPLOY / "tiny_omni_pd.yaml"))
    below = ready(up)
    for name in ("prefill", "decode", "talker", "code2wav"):
        assert [line for line in up.said().splitlines() if line.startswith("done") and f"s  {name}" in line]
    written = deltas(up.chat("omni-tiny", max_tokens=8))
    text = "".join(delta.get("content") or "" for delta in written)
    assert text
    assert not any("audio" in delta for delta in written)

    lines = up.chat("omni-tiny", max_tokens=8, **SPOKEN)
    heard, frames = deltas(lines), frames_of(lines)
    audio = [delta["audio"] for delta in heard if delta.get("audio")]
    assert "".join(part.get("transcript") or "" for part in audio) == text
    sound = np.frombuffer(b"".join(base64.b64decode(part.get("data") or "") for part in audio), "<i2")
    assert 0 < frames <= FRAMES
    assert len(sound) == samples_of(cache / "omni-tiny-2", frames)
    assert sound.std() > 0.01 * 2**15

    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(ENDED_WITHIN) == 0, up.said()
    wait_for_end(below, within=0.1)
    assert left(temp) == []


def deltas(lines: list[str]) -> list[dict[str, Any]]:
    """What each event adds to the answer."""
    assert lines[-1] == "data: [DONE]", lines
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    return [choice["delta"] for event in events for choice in event["choices"]]


def frames_of(lines: list[str]) -> int:
    """What the answer says of how many frames it sounds."""
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    (usage,) = [event["usage"] for event in events if event.get("usage")]
    return int(usage["completion_tokens_details"]["audio_tokens"])


def samples_of(model: Path, frames: int) -> int:
    """How long so many frames sound, by the model's configuration."""
    config = json.loads((model / "config.json").read_text())["code2wav_config"]
    return Geometry.of(
        ratios=config["upsampling_ratios"],
        rates=config["upsample_rates"],
        codebook=config["codebook_size"],
        groups=config["num_quantizers"],
    ).samples(frames)


def test_killed_it_leaves_nothing(start: Callable[[], RunningUp]) -> None:
    up = start()
    below = ready(up)
    up.process.kill()
    up.process.wait()
    wait_for_end(below, within=30)
