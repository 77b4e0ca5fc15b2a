"""`duet up`: what it refuses before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.unit.topology.files import TINY, three, written


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: Any) -> int:
        pytest.fail(f"started {plan}")

    monkeypatch.setattr("cli.up.require_vllm", lambda: None)
    monkeypatch.setattr("cli.local.supervise.run", run)


def up(*args: object) -> Result:
    return CliRunner().invoke(app, ["up", *map(str, args)])


def test_a_file_that_is_refused_says_what_check_says(tmp_path: Path) -> None:
    wrong = written(tmp_path, three(pd={"prefill": {"block_size": 16}, "decode": {"block_size": 32}}))
    check = CliRunner().invoke(app, ["topology", "check", str(wrong)])
    result = up("--topology", wrong)
    assert (result.exit_code, result.stderr) == (check.exit_code, check.stderr) == (1, result.stderr)
    assert "stages[0].pd.decode.block_size: block_size differs" in result.stderr
    assert up("--topology", tmp_path / "none.yaml").exit_code == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--connector", "nixl"], "--connector and --topology are both set: expected it to be said in "),
        (["--max-model-len", "9"], "--max-model-len and --topology are both set"),
        (["--no-pd"], "the Thinker is not split; expected prefill and decode, which a gateway needs: give --pd"),
        (["--platform", "tpu"], "--platform 'tpu': expected one of cpu, cuda"),
        (["--model", "no/such"], "--model 'no/such': expected omni-tiny"),
        (["--port", "70000"], "--port: Input should be less than or equal to 65535; got 70000"),
    ],
)
def test_a_flag_that_does_not_go_with_a_file(flags: list[str], said: str) -> None:
    result = up("--topology", TINY, *flags)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(("flags", "name"), [(["--pd"], "--pd"), (["--platform", "cpu"], "--platform")])
def test_a_flag_that_goes_with_a_file_alone(flags: list[str], name: str) -> None:
    result = up("--model", "tiny", *flags)
    assert result.exit_code == 2
    assert f"duet: {name} is about a deploy file: expected --topology FILE beside it" in result.stderr
