from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.processes import wait_for_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals: Linux")

CHILD = (
    "import os, signal, sys; from common.process import die_with_parent; "
    "assert die_with_parent(int(sys.argv[1])); print('ready', flush=True); signal.pause()"
)
WATCHING = (
    "import os, signal, sys; from common.process import watch_parent; "
    "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True)); "
    "print('ready', flush=True); watch_parent(int(sys.argv[1]), grace=3)\n"
    "while True: signal.pause()"
)
PARENT = (
    "import os, subprocess, sys; "
    "p = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE); "
    "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
)


@pytest.mark.parametrize("child", [CHILD, WATCHING], ids=["told by Linux", "watching"])
def test_it_ends_when_its_parent_is_killed(child: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, child], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_for_end([pid])


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    gone = subprocess.run([sys.executable, "-c", CHILD, "1"], stdout=subprocess.PIPE, timeout=30)
    assert gone.returncode == -signal.SIGTERM
    assert gone.stdout == b""


def test_one_that_will_not_go_is_told_first_and_killed_then() -> None:
    gone = subprocess.run([sys.executable, "-c", WATCHING, "1"], stdout=subprocess.PIPE, timeout=30)
    assert gone.returncode == -signal.SIGKILL
    assert gone.stdout.split() == [b"ready", b"told"]


def test_while_its_parent_lives_it_lives() -> None:
    code = "import os, time; from common.process import watch_parent; from common.process.parent import LOOK_EVERY\n"
    code += "watch_parent(os.getppid(), grace=0); time.sleep(3 * LOOK_EVERY); print('ended by itself')"
    lived = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=30)
    assert (lived.returncode, lived.stdout) == (0, b"ended by itself\n")
