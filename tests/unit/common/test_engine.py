"""Engine addresses."""

from __future__ import annotations

import pytest

from common.engine import Engine, Role
from common.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "id_", "base"),
    [
        ("http://127.0.0.1:8100", "127.0.0.1:8100", "http://127.0.0.1:8100"),
        ("http://Engine.local/", "engine.local:80", "http://engine.local:80"),
        ("https://e", "e:443", "https://e:443"),
        ("http://[::1]:8100", "[::1]:8100", "http://[::1]:8100"),
        ("http://e:1/base/", "e:1/base", "http://e:1/base"),
    ],
)
def test_addresses(url: str, id_: str, base: str) -> None:
    engine = Engine.at(url, Role.PREFILL)
    assert (engine.id, engine.url) == (id_, base)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8100", "ftp://e", "http://", "http://e:99999", "http://e/?a", "http://[::1"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigurationError, match="decode engine URL"):
        Engine.at(url, Role.DECODE)


@pytest.mark.parametrize(
    ("role", "leg", "serves"),
    [
        (Role.PREFILL, Role.PREFILL, True),
        (Role.PREFILL, Role.DECODE, False),
        (Role.BOTH, Role.PREFILL, True),
        (Role.BOTH, Role.DECODE, True),
    ],
)
def test_roles(role: Role, leg: Role, serves: bool) -> None:
    assert role.serves(leg) is serves


def test_the_query_holds_facts_for_the_connector() -> None:
    engine = Engine.at("http://e:1?bootstrap_port=8999&b=", Role.PREFILL)
    assert (engine.id, engine.url, engine.facts) == ("e:1", "http://e:1", {"bootstrap_port": "8999", "b": ""})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://e:0", "port 0 is none"),
        ("http://u:pw@e:1", "user or password"),
        ("http://e:1?bootstrap_port=1&bootstrap_port=2", "one thing twice"),
    ],
)
def test_what_would_be_changed_in_silence_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        Engine.at(url, Role.PREFILL)
    assert "pw" not in refused.value.message.replace("password", "")
