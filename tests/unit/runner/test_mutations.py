"""The tests notice each way of breaking the contract (`tests/mutations.py`)."""

from __future__ import annotations

import pytest

from tests.mutations import MUTATIONS, failures


@pytest.mark.timeout(1800)  # seconds, for a dozen short runs of pytest on a busy machine
def test_every_mutation_is_noticed() -> None:
    assert failures(None) == []
    assert {mutation.name for mutation in MUTATIONS if not failures(mutation)} == set()
