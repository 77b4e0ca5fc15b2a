"""Files that are refused: the first line of each is the one message that it gives, the line number first."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from common.topology import TopologyInvalid, plan

BROKEN = sorted((Path(__file__).parent / "broken").glob("*.yaml"))


def expected(file: Path) -> str:
    said = file.read_bytes().splitlines()[0].decode().removeprefix("# ")
    return f"{file}:{said}" if said[0].isdigit() else f"{file}: {said}"


def test_there_are_some() -> None:
    assert len(BROKEN) >= 30


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_it_gives_one_message(file: Path) -> None:
    with pytest.raises(TopologyInvalid) as refused:
        plan(file)
    assert str(refused.value) == expected(file)
    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_the_command_says_it_without_a_traceback(file: Path) -> None:
    result = CliRunner().invoke(app, ["topology", "check", str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"duet: {expected(file)}\n"
    assert isinstance(result.exception, SystemExit)


def test_several_faults_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("async_chunks: true\nstages:\n  - stage_id: zero\n    device: '0'\n")
    with pytest.raises(TopologyInvalid) as refused:
        plan(file)
    assert str(refused.value).splitlines() == [
        f"{file}:3: stages[0].stage_id: expected a whole number, got 'zero'",
        f"{file}:4: stages[0].device: unknown key; did you mean devices?",
        f"{file}:1: async_chunks: unknown key; did you mean async_chunk?",
    ]
