"""`duet up --topology` with simulated engines: in which order they start, and how that ends."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from common.ports import free_ports
from engines.talker import talker_folder
from tests.processes import wait_for
from tests.running_up import RunningUp, running_up

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux"),
    pytest.mark.timeout(300),
]

Start = Callable[..., RunningUp]
ORDER = ["code2wav", "talker", "decode", "prefill"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Four stages, and an engine each."""
    monkeypatch.setenv("DUET_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text('{"talker_config": {}, "code2wav_config": {}}')
    talker_folder(folder).mkdir()
    with ExitStack() as stack:

        def start(kind: str, devices: str = "cpu") -> RunningUp:
            stages = [{"stage_id": at, "devices": devices, "gpu_memory_utilization": 0.2} for at in range(3)]
            stages[0]["pd"] = {"decode": {"devices": "cpu" if devices == "cpu" else "1"}}
            path = tmp_path / "t.yaml"
            path.write_text(yaml.safe_dump({"model": str(folder), "stages": stages}))
            argv = [sys.executable, "-m", "tests.integration.up_simulated", kind, "--topology", str(path)]
            return stack.enter_context(running_up(argv, tmp_path, free_ports(1)[0]))

        yield start


def steps(up: RunningUp) -> list[tuple[str, str]]:
    """What the checklist said of engines: (`running` or `done`, name)."""
    found = re.findall(r"^(running|done|failed) +[\d.]+ s  ([\w-]+)", up.said(), re.MULTILINE)
    return [(state, name) for state, name in found if name in ORDER]


def ready(up: RunningUp) -> list[int]:
    return up.ready(len(ORDER), within=120)


def ended(up: RunningUp, below: list[int], status: int) -> None:
    up.ended(below, status, within=60)


def test_who_is_fed_starts_first_and_the_gateway_last(start: Start, tmp_path: Path) -> None:
    up = start("sim")
    below = ready(up)
    assert [name for state, name in steps(up) if state == "running"] == ORDER
    assert sorted(name for state, name in steps(up) if state == "done") == sorted(ORDER)
    said = up.said()
    assert said.index("s  gateway") > max(
        said.index(f"done{rest}") for rest in re.findall(r"^done(.+)$", said, re.M)[:-1]
    )
    assert up.chat("m")[-1] == "data: [DONE]"
    logs = Path(re.findall(r"^Logs +(.+)$", said, re.MULTILINE)[0])
    assert sorted(log.name for log in logs.iterdir()) == sorted(f"{name}.log" for name in [*ORDER, "gateway", "valkey"])
    up.process.send_signal(signal.SIGINT)
    ended(up, below, 0)
    assert [path.name for path in tmp_path.glob("duet-*")] == []


def test_engines_of_one_device_wait_for_each_other(start: Start) -> None:
    up = start("sim", "0")
    below = ready(up)
    of_device = [step for step in steps(up) if step[1] != "decode"]
    assert of_device == [(state, name) for name in ("code2wav", "talker", "prefill") for state in ("running", "done")]
    assert steps(up).index(("running", "decode")) < steps(up).index(("done", "code2wav"))
    up.process.send_signal(signal.SIGTERM)
    ended(up, below, 0)


def test_one_that_fails_is_named_with_its_last_words_and_everything_ends(start: Start) -> None:
    up = start("broken")
    assert up.process.wait(120) == 1
    assert ("failed", "decode") in steps(up)
    assert re.search(r"^duet: decode ended with status 3; the end of .+/decode\.log:\nno weights\n\Z", up.said(), re.M)
    assert "Ready" not in up.said()


def test_one_that_ends_later_is_named(start: Start) -> None:
    up = start("sim")
    below = ready(up)
    url = re.findall(r"^done .*s  talker \(.*:(\d+)\)$", up.said(), re.MULTILINE)[0]
    argv = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in below}
    (talker,) = [pid for pid, args in argv.items() if url in args and args[1:3] == ["-m", "engines.sim"]]
    os.kill(talker, signal.SIGKILL)
    ended(up, below, 1)
    assert "duet: talker ended with status 137; the end of " in up.said()


def test_ctrl_c_while_it_starts(start: Start) -> None:
    """Also before those that wait for a device have started."""
    up = start("stuck", "0")
    wait_for(lambda: ("running", "talker") in steps(up), within=60)
    wait_for(lambda: ("done", "talker") in steps(up) and ("running", "prefill") in steps(up), within=60)
    below = up.below()
    up.process.send_signal(signal.SIGINT)
    ended(up, below, 0)
    assert "Ready" not in up.said()
