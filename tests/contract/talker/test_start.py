"""A Talker's channel is bound from its start to its end, whatever ends it."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from common.engine import Role
from common.errors import ConfigurationError
from common.ports import require_free
from common.process import Child
from tests.contract.talker.conftest import Folders
from tests.ports import own_ports
from tests.processes import descendants, kill, wait_for, wait_for_end
from tests.real_engines import READY_WITHIN, spec_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def test_an_endpoint_that_is_taken_is_named_at_the_start(folders: Folders, tmp_path: Path) -> None:
    from engines.talker.launch import command, environment
    from engines.thinker.errors import EngineStartFailed
    from engines.thinker.ready import Readiness

    with socket.create_server(("127.0.0.1", 0)) as taken:
        channel = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        spec = replace(spec_of(folders.talker, Role.BOTH, None), channel=channel)
        argv, env = command(spec, device="cpu"), environment(spec, device="cpu")
        with (
            Child("talker", argv, log=tmp_path / "talker.log", env=env) as child,
            pytest.raises(EngineStartFailed, match="talker ended with status 1"),
        ):
            Readiness(child, f"http://127.0.0.1:{spec.port}", within=READY_WITHIN).wait()
        said = child.tail(1)
    assert said.startswith(f"common.channel.errors.ChannelError: channel endpoint '{channel}': Address already in use")


def test_a_server_that_is_killed_leaves_neither_its_processes_nor_the_endpoint(
    folders: Folders, tmp_path: Path
) -> None:
    """Started by hand, without guards: the next one may have the endpoint."""
    from engines.talker.launch import command, environment
    from engines.thinker.ready import answers

    (port,) = own_ports(1)
    spec = replace(spec_of(folders.talker, Role.BOTH, None), channel=f"tcp://127.0.0.1:{port}")
    argv, env = command(spec, device="cpu"), {**os.environ, **environment(spec, device="cpu")}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    below: list[int] = []
    try:
        url = f"http://127.0.0.1:{spec.port}"
        wait_for(lambda: server.poll() is not None or answers(url), within=READY_WITHIN)
        assert server.poll() is None, (tmp_path / "log").read_text()
        with pytest.raises(ConfigurationError, match="Address already in use"):
            require_free("127.0.0.1", port)
        below = descendants(server.pid)
        assert len(below) >= 2, "an engine core and a worker"
        server.kill()
        server.wait()
        wait_for_end(below, within=30)
        require_free("127.0.0.1", port)
    finally:
        kill((*below, *descendants(server.pid), server.pid))
        server.wait()
