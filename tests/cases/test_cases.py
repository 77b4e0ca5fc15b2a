"""The black-box cases, once, as a part of all tests. `make cases` runs them alone."""

from __future__ import annotations

import re

import pytest

from tests.cases.__main__ import run

SLACK, MORE = 2, 10
FAILED = re.compile(r"^FAIL (\S+).*\n +-> (late: )?", re.MULTILINE)


@pytest.mark.timeout(1200)
def test_every_case_passes(capfd: pytest.CaptureFixture[str]) -> None:
    """Cases that fail for nothing but time are asked once more, with more of it: the machine may have stood still."""
    said = asked(capfd, SLACK)
    if late := [case for case, is_late in FAILED.findall(said) if is_late]:
        again = asked(capfd, MORE, "--only", ",".join(late))
        assert again.splitlines()[-1] == f"{len(late)} passed, 0 failed", f"{said}\n{again}"
    expected = f"{104 - len(late)} passed, {len(late)} failed"
    assert said.splitlines()[-1] == expected, f"cases failed or were left out:\n{said}"


def asked(capfd: pytest.CaptureFixture[str], slack: int, *more: str) -> str:
    run(["--opt", f"slack={slack}", *more])
    return capfd.readouterr().out
