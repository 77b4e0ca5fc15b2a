"""`docs/cases.md` names every case that there is, and what the peers did, as `baseline.md` has it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "cases.md"
PEERS = ("vllm-router", "sglang-router")
COUNTED = {"pass": "pass", "**FAIL**": "fail", "n/a": "not offered"}


def tables(text: str) -> list[list[dict[str, str]]]:
    """Every table, as rows by the names of their columns."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif found[-1]:
            found.append([])
    return [[dict(zip(rows[0], row, strict=False)) for row in rows[2:]] for rows in found if rows]


def by_case(text: str) -> dict[str, dict[str, str]]:
    (rows,) = (table for table in tables(text) if "case" in table[0])
    return {row["case"]: row for row in rows}


def test_the_page_has_every_case_and_the_peers_results() -> None:
    listed = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--list"], stdout=subprocess.PIPE, text=True, check=True
    )
    ids = [line.split()[0] for line in listed.stdout.splitlines()[:-1]]  # the last line says how many
    ours, theirs = by_case(PAGE.read_text()), by_case((HERE / "baseline.md").read_text())
    assert len(ids) >= 106
    assert sorted(ours) == sorted(ids)
    for id_, row in ours.items():
        assert [row[peer] for peer in PEERS] == [theirs[id_][peer] for peer in PEERS], id_


def test_the_page_adds_up() -> None:
    page = PAGE.read_text()
    rows = by_case(page).values()
    (sums,) = (table for table in tables(page) if "gateway" in table[0])
    for row, column in zip(sums, ("Duet", *PEERS), strict=True):
        counts = Counter(COUNTED[r[column]] for r in rows)
        assert {name: int(row[name]) for name in COUNTED.values()} == {n: counts[n] for n in COUNTED.values()}
