"""Media behind URLs have one identity on both legs; everything else stays as it came."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import decode_body, parse, prefill_body
from gateway.wire.identity import URL_KEYS, with_identities
from gateway.wire.parts import MEDIA_KEYS
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import body_of, json_values

HTTP, DATA = "https://example.org/a.png", "data:image/png;base64,AAAA"
DOWNLOADED: list[dict[str, Any]] = [
    *({"type": key, key: {"url": HTTP}} for key in sorted(URL_KEYS)),
    *({key: {"url": HTTP, "detail": "low"}} for key in sorted(URL_KEYS)),
    {"image_url": HTTP},
    {"type": "input_image", "image_url": HTTP, "detail": "auto"},
    {"type": "image_url", "image_url": {"url": "file:///shared/a.png"}, "uuid": None},
]
BESIDE_NULLS: list[dict[str, Any]] = [
    *(
        {"type": key, key: {"url": HTTP}, **dict.fromkeys(sorted(MEDIA_KEYS - {key})), "text": None}
        for key in sorted(URL_KEYS)
    ),
    {"type": "input_image", "image_url": HTTP, "detail": "auto", "audio_url": None, "image_pil": None, "uuid": None},
    {"image_pil": None, "type": "image_url", "image_url": {"url": HTTP}},
    {"type": None, "image_url": {"url": HTTP}, "audio_url": None},
    {"image_url": {"url": HTTP}, "video_url": None},
]
LEFT_ALONE: list[Any] = [
    "text",
    {"type": "text", "text": HTTP},
    {"type": "text", "text": "t", "image_url": {"url": HTTP}},
    {"type": "image_url", "image_url": {"url": DATA}},
    {"type": "image_url", "image_url": {"url": DATA.replace("data", "DATA")}},
    {"type": "image_url", "image_url": {"url": HTTP}, "uuid": "mine"},
    {"type": "image_url", "image_url": {"url": HTTP}, "uuid": ""},
    {"type": "image_url", "image_url": HTTP},
    {"type": "audio_url", "image_url": {"url": HTTP}},
    {"type": "image_url", "image_url": {"url": HTTP}, "audio_url": {"url": HTTP}},
    {"type": "image_url", "image_url": {"url": 5}},
    {"type": "image_url", "image_url": None},
    {"type": 7, "image_url": {"url": HTTP}},
    {"type": "input_image", "image_url": HTTP},
    {"type": "input_image", "image_url": {"url": HTTP}, "detail": "auto"},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
]


def asked(*parts: Any, request_id: str = "r1") -> list[Any]:
    """What both legs are sent of these parts."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": list(parts)}, {"role": "assistant"}]
    sent = parse(CHAT, json.dumps({"model": "m", "messages": messages}).encode())
    request = with_identities(sent, request_id)
    legs = [json.loads(body)["messages"] for body in (prefill_body(request, {"a": 1}), decode_body(request, {}, None))]
    assert legs[0] == legs[1]
    assert [legs[0][0], legs[0][2]] == [messages[0], messages[2]]
    found: list[Any] = legs[0][1]["content"]
    return found


@pytest.mark.parametrize("part", DOWNLOADED, ids=json.dumps)
def test_what_each_engine_downloads_has_a_name(part: dict[str, Any]) -> None:
    assert asked({"type": "text", "text": "look"}, part)[1] == {**part, "uuid": "r1-0"}


@pytest.mark.parametrize("part", BESIDE_NULLS, ids=json.dumps)
def test_null_is_no_media_beside_what_is_downloaded(part: dict[str, Any]) -> None:
    (named,) = asked(part)
    assert named["uuid"] == "r1-0"
    kept = {key: value for key, value in part.items() if value is not None or key not in MEDIA_KEYS}
    assert named == {**(kept if part.get("type") else part), "uuid": "r1-0"}


@pytest.mark.parametrize("part", LEFT_ALONE, ids=json.dumps)
def test_everything_else_stays_as_it_came(part: Any) -> None:
    assert asked(part) == [part]
    assert asked(part, DOWNLOADED[0]) == [part, {**DOWNLOADED[0], "uuid": "r1-0"}]


def test_each_part_of_each_request_has_its_own() -> None:
    names = [part["uuid"] for request_id in ("r1", "r2") for part in asked(*DOWNLOADED, request_id=request_id)]
    assert len(set(names)) == 2 * len(DOWNLOADED)


def test_a_request_without_such_parts_is_not_touched() -> None:
    for endpoint in (CHAT, COMPLETIONS):
        request = parse(endpoint, json.dumps(body_of(endpoint)).encode())
        assert with_identities(request, "r") is request
    sent = parse(CHAT, json.dumps({"model": "m", "messages": [{"role": "user", "content": LEFT_ALONE}]}).encode())
    assert with_identities(sent, "r") is sent


def test_the_bytes_of_what_stands_beside_it_stay() -> None:
    content = b'[{"image_url":{"url":"http://x", "a":1e2}},{"text" : "\\u00e9"}]'
    body = b'{"model":"m","messages":[{"n":1.50,"content":' + content + b"}]}"
    messages = bytes(with_identities(parse(CHAT, body), "r").fields["messages"])
    assert b'"n":1.50' in messages
    assert b'{"url":"http://x", "a":1e2}' in messages
    assert b'{"text" : "\\u00e9"}' in messages


@given(st.lists(json_values | st.sampled_from(DOWNLOADED + LEFT_ALONE), max_size=4))
def test_whatever_parts_are(parts: list[Any]) -> None:
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": parts}]})
    request = with_identities(parse(CHAT, body), "r")
    (message,) = json.loads(bytes(request.fields["messages"]))
    assert len(message["content"]) == len(parts)
