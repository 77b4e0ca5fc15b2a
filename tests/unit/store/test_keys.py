from __future__ import annotations

import re

import pytest

from common.errors import ConfigurationError
from gateway.store.keys import Keys


def tag(key: str) -> str:
    """What Redis Cluster hashes of a key: the text between the first pair of braces."""
    match = re.search(r"\{(.+?)\}", key)
    return match[1] if match else key


def test_keys_that_go_together_share_a_tag() -> None:
    keys = Keys("p:")
    assert tag(keys.request("a1")) == tag(keys.events("a1")) == "a1"
    assert tag(keys.leases) == tag(keys.owned("replica-1")) == "owners"


def test_every_key_starts_with_the_prefix_and_none_is_another() -> None:
    keys = Keys("p:")
    names = [keys.request("a"), keys.events("a"), keys.owned("a"), keys.load("a"), keys.leases, keys.recent]
    assert all(name.startswith("p:") for name in names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("prefix", ["{duet}:", "a}", "{"])
def test_a_prefix_cannot_take_the_place_of_the_tags(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="expected no brace"):
        Keys(prefix)
