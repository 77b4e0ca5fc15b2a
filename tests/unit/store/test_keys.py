from __future__ import annotations

import pytest
from redis.crc import key_slot

from common.errors import ConfigurationError
from gateway.store.keys import Keys


def slot(key: str) -> int:
    """Where Redis Cluster keeps a key."""
    return key_slot(key.encode())


def test_keys_of_one_script_share_a_slot() -> None:
    keys = Keys("p:")
    assert slot(keys.request("a1")) == slot(keys.events("a1")) != slot(keys.request("a2"))
    assert slot(keys.leases) == slot(keys.owned("replica-1")) == slot(keys.owned("replica-2"))


def test_every_key_starts_with_the_prefix_and_none_is_another() -> None:
    keys = Keys("p:")
    names = [keys.request("a"), keys.events("a"), keys.owned("a"), keys.load("a"), keys.leases, keys.recent]
    assert all(name.startswith("p:") for name in names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("prefix", ["{duet}:", "a}", "{"])
def test_a_prefix_cannot_take_the_place_of_the_tags(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="expected no brace"):
        Keys(prefix)
