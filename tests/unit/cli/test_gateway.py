from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import typer
from typer.testing import CliRunner, Result

from cli.main import app
from common.ports import free_ports
from gateway.settings import Settings
from tests.processes import descendants, wait_for, wait_for_end

ENGINES = ["--prefill", "http://p:8100", "--decode", "http://d:8200"]
REDIS = ["--redis-url", "redis://r:6379/0"]
README = Path(__file__).parents[3] / "README.md"


class Serve:
    """Stands for `gateway.bootstrap.serve`: keeps what it was given, and returns at once."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.answered = False

    def __call__(self, settings: Settings) -> None:
        self.settings = settings
        assert settings.redis_url is not None
        url = settings.redis_url.get_secret_value()
        if url.startswith("unix://"):
            with redis.Redis.from_url(url) as client:
                self.answered = bool(client.ping())


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    fake = Serve()
    monkeypatch.setattr("gateway.bootstrap.serve", fake)
    before = signal.getsignal(signal.SIGTERM)
    yield fake
    signal.signal(signal.SIGTERM, before)


def gateway(*args: str, port: int = 0) -> Result:
    return CliRunner().invoke(app, ["gateway", "--port", str(port), *args])


def served(serve: Serve, result: Result) -> Settings:
    assert result.exit_code == 0, result.output
    assert serve.settings is not None
    return serve.settings


def test_flags_become_settings(serve: Serve) -> None:
    result = gateway(
        *("--host", "0.0.0.0"),
        *("--prefill", "http://p1:8100", "--prefill", "http://p2:8100"),
        *("--decode", "http://d1:8200", "--decode", "http://d2:8200"),
        *("--connector", "NixlConnector", "--kv-lease", "12.5", *REDIS),
        *("--api-key", "k1", "--api-key", "k2", "--admin-key", "a", "--engine-api-key", "e", "--log-level", "debug"),
    )
    settings = served(serve, result)
    assert settings.host == "0.0.0.0"
    assert settings.prefill == ("http://p1:8100", "http://p2:8100")
    assert settings.decode == ("http://d1:8200", "http://d2:8200")
    assert (settings.connector, settings.kv_lease, settings.log_level) == ("NixlConnector", 12.5, "debug")
    assert [key.get_secret_value() for key in settings.api_key] == ["k1", "k2"]
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "a"
    assert settings.engine_api_key is not None
    assert settings.engine_api_key.get_secret_value() == "e"
    assert result.output == ""


def options(command: str) -> dict[str, str]:
    """Flags of a command, and what their help says."""
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    return {flag: param.help or "" for param in found.params for flag in param.opts if flag.startswith("--")}


def test_every_kind_of_engine_says_what_it_is_for() -> None:
    told = options("gateway")
    kinds = ["prefill", "decode", "talkers", "code2wavs"]
    assert len({told[f"--{kind}"] for kind in kinds}) == len(kinds)
    assert "speech" in told["--talkers"]
    assert "sound" in told["--code2wavs"]


def test_the_readme_has_every_flag() -> None:
    """And its variable."""
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `--")]
    for flag in options("gateway"):
        if flag == "--help":
            continue
        variable = f"DUET_{flag.removeprefix('--').replace('-', '_').upper()}"
        assert any(f"`{flag}" in row and f"`{variable}`" in row for row in rows), flag


def test_the_doctor_takes_every_flag() -> None:
    assert options("gateway").keys() <= options("doctor").keys()


def test_the_environment_gives_what_flags_do_not(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_PREFILL", "http://p1:1, http://p2:2")
    monkeypatch.setenv("DUET_DECODE", "http://env:3")
    monkeypatch.setenv("DUET_LOG_LEVEL", "warning")
    monkeypatch.setenv("DUET_REDIS_URL", "redis://env:6379")
    settings = served(serve, gateway("--decode", "http://flag:4"))
    assert settings.prefill == ("http://p1:1", "http://p2:2")
    assert settings.decode == ("http://flag:4",)
    assert settings.log_level == "warning"
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://env:6379"


def test_without_a_redis_it_brings_its_own(serve: Serve) -> None:
    result = gateway(*ENGINES)
    settings = served(serve, result)
    assert serve.answered
    assert settings.redis_url is not None
    assert not Path(settings.redis_url.get_secret_value().removeprefix("unix://")).parent.exists()
    assert "embedded Valkey" in result.stderr
    assert settings.prefill == ("http://p:8100",)


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (["--port", "70000"], {}, "duet: --port: Input should be less than or equal to 65535; got 70000\n"),
        (["--log-level", "loud"], {}, "--log-level: Input should be 'debug', 'info', 'warning' or 'error'; got 'loud'"),
        (["--kv-lease", "0"], {}, "duet: --kv-lease: Input should be greater than 0; got 0.0\n"),
        ([], {"DUET_IDLE_TIMEOUT": "soon"}, "duet: DUET_IDLE_TIMEOUT: Input should be a valid number"),
        (["--prefill", "ftp://p"], {}, "prefill engine URL 'ftp://p': expected http://host:port"),
        (["--redis-url", "http://r"], {}, "the Redis URL cannot be used"),
        (["--redis-url", "redis://r/abc"], {}, "the Redis URL cannot be used"),
    ],
)
def test_a_wrong_setting_is_one_line(
    monkeypatch: pytest.MonkeyPatch, args: list[str], env: dict[str, str], said: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    result = gateway(*ENGINES, *REDIS, *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("duet: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_engine_is_missing(serve: Serve) -> None:
    result = gateway("--prefill", "http://p:1")
    assert result.exit_code == 2
    assert result.stderr == "duet: no decode engine: expected --decode URL or DUET_DECODE\n"
    assert serve.settings is None


def test_a_port_that_is_taken_is_noticed_first(serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = gateway(*ENGINES, port=port)
    assert result.exit_code == 2
    assert f"port {port} on 127.0.0.1 cannot be used" in result.stderr
    assert serve.settings is None


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc: Linux")
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_valkey(tmp_path: Path, sig: signal.Signals) -> None:
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "cli.main", "gateway", "--port", str(port)]
    argv += ["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2"]
    with tempfile.TemporaryDirectory(dir="/tmp") as tmp:  # tmp_path is too long for a socket in it, now and then
        env = {**os.environ, "TMPDIR": tmp}
        with (tmp_path / "err").open("w+") as err, subprocess.Popen(argv, stderr=err, env=env) as running:
            wait_for(lambda: alive(port), within=60)
            below = descendants(running.pid)
            assert len(list(Path(tmp).iterdir())) == 1
            running.send_signal(sig)
            assert running.wait(60) == 0
            assert "Traceback" not in (tmp_path / "err").read_text()
        assert len(below) == 3
        wait_for_end(below, within=0.1)
        assert list(Path(tmp).iterdir()) == []


def alive(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def test_a_registry_needs_a_redis_that_engines_reach() -> None:
    result = CliRunner().invoke(app, ["gateway", "--registry"])
    assert result.exit_code == 2
    assert "expected --redis-url URL or DUET_REDIS_URL" in result.output


def test_a_file_that_cannot_be_used_is_told_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text("cooks: []")
    result = CliRunner().invoke(app, ["gateway", "--engines-file", str(path)])
    assert result.exit_code == 2
    assert "line 1: cooks: is not known here; expected some of prefill, decode, talkers, code2wavs" in result.output
