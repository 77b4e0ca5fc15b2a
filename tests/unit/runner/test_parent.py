"""What a server that is killed leaves behind, with real processes: nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from common.process.parent import LOOK_EVERY
from tests.processes import alive, kill, wait_for_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_all_end_with_a_server_that_is_killed(method: str) -> None:
    command = [sys.executable, "-m", "tests.unit.runner.family", method]
    pids: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            pids += [int(server.stdout.readline()) for _ in ("server", "engine core", "worker")]
            time.sleep(2 * LOOK_EVERY)  # nothing is gone: nobody ends
            assert [alive(pid) for pid in pids] == [True] * 3
            server.kill()
            server.wait()
            wait_for_end(pids, within=20)
        finally:
            kill(pids)
            server.kill()
