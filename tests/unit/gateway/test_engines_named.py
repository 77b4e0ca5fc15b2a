"""Which engines the settings name, and what becomes of one that is named twice."""

from __future__ import annotations

from typing import Any

import pytest

from common.connectors import connector
from common.engine import Role
from common.errors import ConfigurationError
from gateway.named import engines_of, named_engines, speech_engines_of
from gateway.settings import Settings


def named(kv: str = "mooncake", **settings: Any) -> list[tuple[str, Role, dict[str, str]]]:
    found = engines_of(Settings(_env_file=None, **settings), connector(kv))  # type: ignore[call-arg]
    return [(e.id, e.role, dict(e.facts)) for e in found]


@pytest.mark.parametrize("again", ["http://p:1", "http://p:1/", "http://P:1"])
def test_a_prefill_engine_named_twice_stays_one(again: str) -> None:
    assert named(prefill=("http://p:1", again), decode=("http://d:1",)) == [
        ("p:1", Role.PREFILL, {}),
        ("d:1", Role.DECODE, {}),
    ]


def test_one_that_takes_both_legs_keeps_what_either_url_says_of_it() -> None:
    both = named(prefill=("http://p:1?bootstrap_port=9001",), decode=("http://p:1",))
    assert both == [("p:1", Role.BOTH, {"bootstrap_port": "9001"})]


@pytest.mark.parametrize("again", ["https://p:1", "http://p:1?bootstrap_port=9002"])
def test_two_mentions_that_differ_are_refused(again: str) -> None:
    with pytest.raises(ConfigurationError, match="named twice"):
        named(prefill=("http://p:1?bootstrap_port=9001", again), decode=("http://d:1",))


@pytest.mark.parametrize("port", ["²", "0", "65536", "x", ""])
def test_a_port_that_is_none_is_told(port: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a port from 1 to 65535"):
        named(prefill=(f"http://p:1?bootstrap_port={port}",), decode=("http://d:1",))


def test_one_that_is_wrong_hides_none_that_is_right() -> None:
    urls = ("ftp://p", "http://p:1?bootstrap_port=9001", "http://p:1?bootstrap_port=9002", "http://q:1?colour=red")
    settings = Settings(_env_file=None, prefill=urls)  # type: ignore[call-arg]
    found, wrong = named_engines(settings, connector("mooncake"))
    assert [e.id for e in found] == ["p:1", "q:1"]
    told = ["ftp://p", "named twice", "says 'colour'", "no decode engine"]
    assert len(wrong) == len(told)
    assert all(words in error.message for words, error in zip(told, wrong, strict=True))


def test_speech_needs_talkers_and_code2wavs() -> None:
    def speech(**settings: Any) -> list[tuple[str, Role]]:
        found = speech_engines_of(Settings(_env_file=None, **settings))  # type: ignore[call-arg]
        return [(e.id, e.role) for e in found]

    assert speech() == []
    assert speech(talkers="http://t:1 http://t:1 http://u:1", code2wavs="http://c:1") == [
        ("t:1", Role.TALKER),
        ("u:1", Role.TALKER),
        ("c:1", Role.CODE2WAV),
    ]
    for settings, words in (
        ({"talkers": ("http://t:1",)}, "no code2wav engine.*DUET_CODE2WAVS"),
        ({"code2wavs": ("http://c:1",)}, "no talker engine.*DUET_TALKERS"),
        ({"talkers": ("t:1",), "code2wavs": ("http://c:1",)}, "talker engine URL 't:1'"),
        ({"talkers": ("http://t:1?a=b",), "code2wavs": ("http://c:1",)}, "expected nothing"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            speech(**settings)
