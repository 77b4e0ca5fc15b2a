"""Real processes: what a child's end, its parent's end and its guards' ends leave behind, which is nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from common.process import Child
from tests.processes import WITHIN, alive, descendants, kill, wait_for, wait_for_end

TREE = str(Path(__file__).with_name("tree.py"))

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and child subreapers: Linux")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Of what the test started: real engines of the whole run may be up beside it."""
    before = set(descendants(os.getpid()))
    yield
    left = [pid for pid in descendants(os.getpid()) if pid not in before]
    kill(left)
    assert left == []


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *args]


def child(tmp_path: Path, command: list[str], *, grace: float = 10.0) -> Child:
    return Child("it", command, log=tmp_path / "it.log", grace=grace)


def tree(tmp_path: Path, *how: str, grace: float = 10.0) -> tuple[Child, list[int]]:
    """A started child with children of its own, and the pids of all: guards first, then the command."""
    it = child(tmp_path, [sys.executable, "-I", "-S", TREE, str(tmp_path / "pids"), *how], grace=grace).start()
    wait_for((tmp_path / "pids").exists)
    born = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    guards = [pid for pid in (it.pid, *descendants(it.pid)) if pid not in born]
    assert len(guards) == 2
    assert len(born) == 3
    return it, [*guards, *born]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import os; os.kill(os.getpid(), 15)", 128 + 15),
    ],
)
def test_the_exit_status_is_the_commands(tmp_path: Path, code: str, status: int) -> None:
    with child(tmp_path, python(code)) as it:
        assert it.wait(WITHIN) == status
        assert it.poll() == status
        assert not it.running


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with child(tmp_path, ["/no/such/program"]) as it:
        assert it.wait(WITHIN) == 127
        assert it.tail() == "/no/such/program: No such file or directory"


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"it: the log .*file/it\.log cannot be written"):
        Child("it", ["true"], log=tmp_path / "file" / "it.log").start()


def test_both_outputs_are_in_the_log_and_stdin_is_empty(tmp_path: Path) -> None:
    code = "import sys; print('out', repr(sys.stdin.read()), flush=True); print('err', file=sys.stderr)"
    with child(tmp_path, python(code)) as it:
        it.wait(WITHIN)
        assert it.tail() == "out ''\nerr"


def test_the_environment_is_this_ones_and_what_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("CHANGED", "before")
    code = "import os; print(os.environ['KEPT'], os.environ['CHANGED'])"
    with Child("it", python(code), log=tmp_path / "it.log", env={"CHANGED": "after"}) as it:
        it.wait(WITHIN)
        assert it.tail() == "kept after"


def test_tail(tmp_path: Path) -> None:
    it = child(tmp_path, ["true"])
    assert it.tail() == ""
    it.log.write_bytes(b"old\n" * 100_000 + b"\xff one\n\ntwo\nthree")
    assert it.tail(4) == "\N{REPLACEMENT CHARACTER} one\n\ntwo\nthree"
    assert len(it.tail(10**6)) < 100_000


def test_before_the_start_there_is_nothing_to_stop(tmp_path: Path) -> None:
    it = child(tmp_path, ["true"])
    assert it.poll() is None
    assert it.stop() is None
    assert not it.running


@linux
def test_stop_ends_all_that_is_below(tmp_path: Path) -> None:
    it, pids = tree(tmp_path)
    assert all(map(alive, pids))
    assert it.stop() == 128 + signal.SIGTERM
    wait_for_end(pids, within=0.1)
    assert it.stop() == 128 + signal.SIGTERM


@linux
def test_a_command_that_will_not_go_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    it, pids = tree(tmp_path, "ignore-term", grace=0.2)
    assert it.stop() == 128 + signal.SIGKILL
    wait_for_end(pids, within=0.1)


def test_a_command_may_end_in_its_own_way(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'bye\\n'), sys.exit(5)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    it = child(tmp_path, python(code)).start()
    wait_for(it.tail)
    assert it.stop() == 5
    assert it.tail() == "ready\nbye"


def test_the_commands_own_children_are_told_too(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.pause()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 20)\n"
    )
    it = child(tmp_path, python(code)).start()
    wait_for(it.tail)
    assert it.stop() == 20 - signal.SIGTERM


@linux
def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.setsid()\n"
        "    signal.pause()\n"
        "print(child, flush=True)\n"
        "os._exit(3)\n"
    )
    with child(tmp_path, python(code)) as it:
        assert it.wait(WITHIN) == 3
        assert not alive(int(it.tail()))


@linux
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_everything(tmp_path: Path, sig: signal.Signals) -> None:
    it, pids = tree(tmp_path)
    os.kill(it.pid, sig)
    assert it.wait(WITHIN) == 128 + signal.SIGTERM
    wait_for_end(pids, within=0.1)
    it.stop()


@linux
@pytest.mark.parametrize("which", ["outer", "inner"])
def test_a_killed_guard_leaves_nothing(tmp_path: Path, which: str) -> None:
    it, pids = tree(tmp_path)
    os.kill(pids[0] if which == "outer" else pids[1], signal.SIGKILL)
    assert it.wait(WITHIN) == (-signal.SIGKILL if which == "outer" else 128 + signal.SIGKILL)
    wait_for_end(pids)
    it.stop()


@linux
def test_a_killed_command_takes_its_children_with_it(tmp_path: Path) -> None:
    it, pids = tree(tmp_path)
    os.kill(pids[2], signal.SIGKILL)
    assert it.wait(WITHIN) == 128 + signal.SIGKILL
    wait_for_end(pids, within=0.1)
    it.stop()


@linux
def test_a_killed_parent_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, sys\n"
        "from common.process import Child\n"
        "command = [sys.executable, '-I', '-S', *sys.argv[2:]]\n"
        "Child('it', command, log=pathlib.Path(sys.argv[1])).start()\n"
        "signal.pause()\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "log"), TREE, str(tmp_path / "pids")]
    with subprocess.Popen(argv) as parent:
        wait_for((tmp_path / "pids").exists)
        pids = descendants(parent.pid)
        assert len(pids) == 5
        parent.kill()
    wait_for_end(pids)


@linux
def test_a_child_is_out_of_reach_of_the_terminals_signals(tmp_path: Path) -> None:
    it, pids = tree(tmp_path)
    assert os.getpgid(0) not in {os.getpgid(pid) for pid in pids}
    assert os.getsid(0) not in {os.getsid(pid) for pid in pids}
    it.stop()


@linux
def test_those_that_died_of_each_other_are_killed_all_the_same(tmp_path: Path) -> None:
    it, pids = tree(tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait()
    kill([gone.pid, *pids])
    wait_for_end(pids)
    it.stop()
