"""What stands around the runner: the journal and the last words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from engines.runner.errors import MtpInputsMissing
from engines.runner.journal import Journal
from engines.runner.lastwords import VARIABLE, last_words, left
from tests.unit.runner.stage import Stage
from tests.unit.runner.test_contract import TOKENS, arrive

ROOT = Path(__file__).parents[3]


def test_the_journal_has_every_row_and_every_code(tmp_path: Path) -> None:
    s = Stage()
    path = tmp_path / "phase.log"
    with path.open("a") as file:
        s.runner.journal = Journal(file)
        reference = arrive(s, "r", 3, decoded=2)
        s.step(("r", 0, 6))
    events = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [e for e in events if e["event"] == "row"]
    assert [(e["step"], e["computed"], e["span"], e["num_tokens"]) for e in rows] == [
        (0, 0, 3, 3),
        (1, 3, 1, 4),
        (2, 4, 1, 5),
        (3, 0, 6, 6),
    ]
    assert [(e["is_prefill"], e["mtp"], e["replayed"]) for e in rows] == [
        (True, False, 0),
        (False, True, 0),
        (False, True, 0),
        (True, True, 2),
    ]
    assert [(e["position"], e["codes"]) for e in events if e["event"] == "codes"] == list(reference.codes.items())[:3]
    assert {e["request"] for e in events} == {"r"}
    assert s.requests["r"].output == TOKENS[:3]


def test_there_is_no_journal_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUET_PHASE_LOG", raising=False)
    assert Journal.from_environment() is None


def error(request: str) -> MtpInputsMissing:
    return MtpInputsMissing("nothing came", model="M", requests=[request], rows=[0])


def test_the_first_error_is_the_last_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "words"
    monkeypatch.setenv(VARIABLE, str(path))
    assert left(path) is None
    for request in ("a", "b"):
        with pytest.raises(MtpInputsMissing), last_words():
            raise error(request)
    assert left(path) == "engines.runner.errors.MtpInputsMissing: model M, request a (row 0): nothing came"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nbecause", "because"),
        ("\r\n\n  because\n", "because"),
        ("because\n\n  of\u2028this\x0band that", "because of this and that"),
        ("half a pair: \ud800", "half a pair: \\ud800"),
        ("", ""),
    ],
)
def test_a_word_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "words"
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ConfigurationError), last_words():
        raise ConfigurationError(text)
    assert left(path) == f"common.errors.ConfigurationError: {said}"


def test_a_word_that_cannot_be_left_hides_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing" / "words"))
    with pytest.raises(ConfigurationError, match="because"), last_words():
        raise ConfigurationError("because")


def test_other_errors_leave_no_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "words"
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ZeroDivisionError), last_words():
        raise ZeroDivisionError
    assert left(path) is None
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError), last_words():
        raise ConfigurationError("nowhere to leave it")


SERVER = """
import atexit, os, sys
from common.errors import ConfigurationError
from engines.runner.lastwords import leave
from tests.unit.runner.lingering import start

def main():
    atexit.register(print, "the server's own end", file=sys.stderr)
    print(sys.argv[1:])
    open(os.path.join(os.environ["VLLM_RPC_BASE_PATH"], "a socket"), "w").close()
    for kind in ("slow", "deaf", "orphan"):
        if "--" + kind in sys.argv: start(kind)
    if "--fail" in sys.argv: leave(ConfigurationError("\\n because"))
    if "--crash" in sys.argv: raise RuntimeError("something was raised")

if __name__ == "__main__": main()
"""


@pytest.mark.parametrize(
    ("args", "status", "last"),
    [
        (["--x"], 0, "the server's own end"),
        (["--crash"], 1, "the server's own end"),
        (["--fail"], 1, "common.errors.ConfigurationError: because"),
        (["--fail", "--crash"], 1, "common.errors.ConfigurationError: because"),
        (["--fail", "--slow"], 1, "common.errors.ConfigurationError: because"),
        (["--fail", "--deaf"], 1, "common.errors.ConfigurationError: because"),
        (["--fail", "--orphan"], 1, "common.errors.ConfigurationError: because"),
    ],
)
def test_the_server_ends_with_the_reason(tmp_path: Path, args: list[str], status: int, last: str) -> None:
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "api_server.py").write_text(SERVER)
    (tmp_path / "tmp").mkdir()
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "TMPDIR": str(tmp_path / "tmp")}
    argv = [sys.executable, "-m", "engines.runner.serve", *args]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (status, str(args))
    assert done.stderr.splitlines()[-1] == last
    assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left behind"
