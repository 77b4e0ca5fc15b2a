"""`docs/bodies.md` has every table of the wire, word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.wire import added, errors, legs, plan, sse

PAGE = Path(__file__).parents[3] / "docs" / "bodies.md"


def tables(doc: str | None) -> list[str]:
    assert doc is not None
    lines = [line.strip() for line in doc.splitlines()]
    blocks = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
    return [block.strip() for block in blocks if block.strip()]


@pytest.mark.parametrize(
    ("documented", "count"), [(added, 2), (legs, 1), (legs.takes_prompt_ids, 1), (plan, 1), (sse, 1), (errors, 1)]
)
def test_the_page_has_the_table(documented: Any, count: int) -> None:
    found = tables(documented.__doc__)
    assert len(found) == count
    for table in found:
        assert table in PAGE.read_text()
