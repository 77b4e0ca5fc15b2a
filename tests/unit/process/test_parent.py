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
PARENT = (
    "import os, subprocess, sys; "
    "p = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE); "
    "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
)


def test_it_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_for_end([pid])


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    gone = subprocess.run([sys.executable, "-c", CHILD, "1"], stdout=subprocess.PIPE, timeout=30)
    assert gone.returncode == -signal.SIGTERM
    assert gone.stdout == b""
