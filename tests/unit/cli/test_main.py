from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from cli.main import app


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("up", "gateway", "engine", "say", "status", "doctor"):
        assert f"  {command} " in result.stdout


@pytest.mark.parametrize(
    "command", [["up"], ["gateway"], ["engine"], ["engine", "thinker"], ["say"], ["status"], ["doctor"]]
)
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.stdout


def test_without_a_command_it_is_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "Usage: " in result.output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"duet {version('duet')}\n")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print('loaded', *sorted(set(sys.modules) & set(sys.argv[1:])))"
    )
    heavy = ["torch", "vllm", "fastapi", "uvicorn", "aiohttp", "httpx", "pydantic", "redis", "rich"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"
