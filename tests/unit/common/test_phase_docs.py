"""What `docs/phase-contract.md` tells authors of models is what `common/phase.py` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.phase import KEYS, PhaseInfo

DOCS = (Path(__file__).parents[3] / "docs" / "phase-contract.md").read_text()
CELLS = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCS.splitlines() if line.startswith("|")]
TABLE = [cells for cells in CELLS if cells[0].isdigit()]
"""Rows: prompt, computed before, span, phase, whether it is in MTP."""


def test_the_table_has_the_six_rows() -> None:
    shapes = [tuple(map(int, cells[:3])) for cells in TABLE]
    assert shapes == [(5, 0, 4), (5, 4, 1), (5, 5, 1), (5, 6, 1), (1, 0, 1), (5, 5, 2)]


@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: "/".join(cells[:3]))
def test_each_row_is_so(cells: list[str]) -> None:
    prompt_len, computed, span = map(int, cells[:3])
    phase = PhaseInfo.of(prompt_len, computed, span, max(prompt_len, computed + span))
    assert cells[3].partition(":")[0] == ("prefill" if phase.is_prefill else "decode")
    assert cells[4].partition(":")[0] == ("yes" if phase.mtp_eligible else "no")


def test_the_keys_are_named_and_no_other() -> None:
    named = [cells[0].strip("`") for cells in CELLS if cells[0].startswith("`_omni")]
    assert named == list(KEYS)
