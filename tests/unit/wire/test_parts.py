"""Media in messages, however a part says what it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from gateway.wire import parse
from gateway.wire.parts import MEDIA_KEYS, TEXT_TYPES, media_kinds
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import json_values


def kinds(*parts: Any) -> set[str]:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": list(parts)}, {"role": "assistant"}]
    return set(media_kinds(json.dumps(messages).encode()))


@pytest.mark.parametrize("type_", sorted(TEXT_TYPES))
def test_text(type_: str) -> None:
    assert kinds({"type": type_, "text": 'of "image_url" and {"type": "input_audio"}'}) == set()


@pytest.mark.parametrize("name", sorted(MEDIA_KEYS))
def test_media_by_type_and_by_key(name: str) -> None:
    assert kinds({"type": name, "x": 1}) == {name}
    assert kinds({name: "u"}) == {name}
    assert kinds({"type": "text", "text": "t"}, {"type": "text", name: "u"}) == {name}


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"type": "hologram"}, {"hologram"}),
        ({"type": 7}, {"7"}),
        ({"type": None}, {"None"}),
        ({"type": ["text"]}, {"['text']"}),
        ({"type": {}}, {"{}"}),
        ({"text": "t"}, set()),
        ({}, set()),
        ("just text", set()),
        (None, set()),
        ({"type": "input_image", "image_url": "u"}, {"input_image", "image_url"}),
    ],
)
def test_odd_parts(part: Any, found: set[str]) -> None:
    assert kinds(part) == found


def test_a_key_in_escapes_is_the_same_key() -> None:
    assert media_kinds(rb'[{"content" : [ {"image\u005furl":"u"} ]}]') == {"image_url"}


@pytest.mark.parametrize(
    "messages", [b"null", b'"x"', b"[]", b"[[1]]", b'[{"content":[1]},[2]]', b"[" * 500 + b"]" * 500]
)
def test_what_is_no_list_of_messages_has_none(messages: bytes) -> None:
    assert media_kinds(messages) == frozenset()


@given(json_values)
def test_whatever_messages_are(messages: Any) -> None:
    found = media_kinds(json.dumps(messages).encode())
    assert not found & TEXT_TYPES


def test_a_request_knows_its_media() -> None:
    messages = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]}]
    body = json.dumps({"model": "m", "messages": messages, "prompt": "p"}).encode()
    assert parse(CHAT, body).media == {"video_url"}
    assert parse(COMPLETIONS, body).media == frozenset()
