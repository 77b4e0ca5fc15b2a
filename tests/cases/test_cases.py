"""The black-box cases, once, as a part of all tests. `make cases` runs them alone."""

from __future__ import annotations

import pytest

from tests.cases.__main__ import run


@pytest.mark.timeout(1200)
def test_every_case_passes(capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["--opt", "slack=2"])
    said = capfd.readouterr().out
    assert status == 0, said
    assert said.splitlines()[-1] == "104 passed, 0 failed", f"cases were left out:\n{said[-400:]}"
