"""The chain with Mooncake between prefill and decode: `mooncake_inside.py` has the tests."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.inside import names_of, run_mooncake_inside
from tests.e2e.speech import mooncake_inside

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return run_mooncake_inside(mooncake_inside, tmp_path_factory.mktemp("inside"))


@pytest.mark.parametrize("name", names_of(mooncake_inside))
def test_in_a_network_of_its_own(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes.get(name) == "passed", outcomes.get(name, "it did not run")
