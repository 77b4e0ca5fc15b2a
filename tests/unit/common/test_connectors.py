"""What one connector does and the contract's own suite does not ask of all."""

from __future__ import annotations

import pytest

from common.connectors import connector


@pytest.mark.parametrize(("name", "carries"), [("Multi(example)", False), ("Multi(example, nixl)", True)])
def test_several_carry_a_handoff_if_one_of_them_does(name: str, carries: bool) -> None:
    assert connector(name).carries is carries


def test_a_lease_below_a_second_is_not_none_at_all() -> None:
    """Mooncake takes whole seconds, and 0 would be no lease."""
    env = connector("mooncake", lease=0.5).engine_env(host="h", side_port=1)
    assert env["VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT"] == "1"
