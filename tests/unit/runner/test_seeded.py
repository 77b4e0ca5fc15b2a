"""A draw that is dropped is not taken from a request's own generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from engines.runner.seeded import SeededDraws  # noqa: E402


class Stock:
    """Says which generators sampling sees; fails if it is told to."""

    def __init__(self, dropped: list[bool], generators: dict[int, str]) -> None:
        self.input_batch = SimpleNamespace(num_reqs=len(dropped), generators=generators)
        self.discard_request_mask = SimpleNamespace(np=np.array([*dropped, True]))
        self.fails = False

    def sample_tokens(self, grammar: Any) -> dict[int, str]:
        if self.fails:
            raise RuntimeError("it burnt")
        return dict(self.input_batch.generators)


class Runner(SeededDraws, Stock):  # type: ignore[misc]
    pass


def test_only_rows_whose_token_counts_draw_from_their_own() -> None:
    generators = {0: "a", 2: "c", 3: "d"}
    runner = Runner([True, True, False, True], generators)
    assert runner.sample_tokens(None) == {2: "c"}
    assert generators == {0: "a", 2: "c", 3: "d"}
    runner.fails = True
    with pytest.raises(RuntimeError, match="it burnt"):
        runner.sample_tokens(None)
    assert generators == {0: "a", 2: "c", 3: "d"}
