"""What is read of a client's body, what is dropped, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import BadRequest, MalformedBody
from gateway.wire import parse
from gateway.wire.added import DROPPED
from gateway.wire.modalities import ASKS
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import ENDPOINTS, PROMPTS, body_of, chat, completion, json_values, request_of


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("fields", "stream", "include_usage"),
    [
        ({}, False, False),
        ({"stream": None, "stream_options": None}, False, False),
        ({"stream": False, "stream_options": {}}, False, False),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": {}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": None}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}, True, True),
    ],
)
def test_what_is_read(endpoint: str, fields: dict[str, Any], stream: bool, include_usage: bool) -> None:
    request = request_of(endpoint, **fields)
    assert (request.endpoint, request.model) == (endpoint, "m")
    assert (request.stream, request.include_usage) == (stream, include_usage)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model":"m",}', "not valid JSON"),
        (b'{"model":"m"} x', "not valid JSON"),
        (b'{"model":"m","temperature":NaN}', "not valid JSON"),
        (b'{"model":"m","user":"\x01"}', "not valid JSON"),
        (b'{"model":"m","user":"\\ud800"}', "not valid JSON"),
        (b'{"\\udc00":1}', "not valid JSON"),
        (b'\xef\xbb\xbf{"model":"m"}', "not valid JSON"),
        (b"[]", "not a JSON object.*array"),
        (b'"m"', "not a JSON object.*str"),
        (b"null", "not a JSON object.*null"),
        (b'{"model":"m","user":"\xff"}', "not UTF-8: byte 0xff at 21"),
        (b'{"\xc3":1}', "not UTF-8"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_no_json_object(endpoint: str, body: bytes, message: str) -> None:
    with pytest.raises(MalformedBody, match=message) as caught:
        parse(endpoint, body)
    assert (caught.value.status, caught.value.param) == (400, None)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": None}, "model", "model is null; expected a model name"),
        ({"model": 7}, "model", "model is 7; expected a model name"),
        ({"model": ["m"]}, "model", r'model is \["m"\]; expected'),
        ({"model": {"name": "x" * 500}}, "model", r'model is \{"name": "x{70}; expected a model name$'),
        ({"stream": 1}, "stream", "stream is 1; expected true or false"),
        ({"stream": "true"}, "stream", 'stream is "true"; expected true or false'),
        ({"stream": True, "stream_options": 3}, "stream_options", "stream_options is 3; expected an object"),
        ({"stream": True, "stream_options": []}, "stream_options", r"stream_options is \[\]; expected an object"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": [1]}},
            "stream_options.continuous_usage_stats",
            r"stream_options.continuous_usage_stats is \[1\]; expected true or false",
        ),
        (
            {"stream": True, "stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
            'stream_options.include_usage is "yes"; expected true or false',
        ),
        (
            {"stream_options": {"include_usage": True}},
            "stream_options",
            r'stream_options is \{"include_usage": true\} and stream is not true; expected it only for streams',
        ),
    ],
)
def test_a_wrong_field_is_named(endpoint: str, fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        request_of(endpoint, **fields)
    assert caught.value.param == param
    assert not isinstance(caught.value, MalformedBody)


def test_a_wrong_value_is_shown_though_it_is_cut_inside_a_character() -> None:
    with pytest.raises(BadRequest, match=r"model is .*; expected a model name"):
        parse(CHAT, json.dumps({"model": ["é" * 100], **PROMPTS[CHAT]}, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        (CHAT, {"messages": []}, "model"),
        (COMPLETIONS, {"prompt": ""}, "model"),
        (CHAT, {"model": "m", "prompt": "x"}, "messages"),
        (COMPLETIONS, {"model": "m", "messages": []}, "prompt"),
    ],
)
def test_what_must_be_there(endpoint: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest, match=f"^{param} is missing; expected") as caught:
        parse(endpoint, json.dumps(body).encode())
    assert caught.value.param == param


def test_embeddings_are_a_prompt() -> None:
    assert parse(COMPLETIONS, b'{"model":"m","prompt_embeds":"AAAA"}').fields.keys() == {"model", "prompt_embeds"}


@pytest.mark.parametrize(
    "good", [None, b"application/json", b"application/json; charset=utf-8", b"Application/JSON ;charset=utf-8"]
)
def test_content_types(good: bytes | None) -> None:
    body = json.dumps(body_of(CHAT)).encode()
    assert parse(CHAT, body, good).model == "m"


@pytest.mark.parametrize(
    "bad", [b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/jsonl", b"\xff"]
)
def test_other_content_types(bad: bytes) -> None:
    body = json.dumps(body_of(CHAT)).encode()
    with pytest.raises(MalformedBody, match=r"the content-type is '.*'; expected application/json"):
        parse(CHAT, body, bad)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("name", sorted(DROPPED))
@pytest.mark.parametrize("value", [{"do_remote_prefill": True, "remote_host": "10.0.0.1"}, None, "evil", [1]])
def test_fields_that_steer_engines_are_dropped(endpoint: str, name: str, value: Any) -> None:
    request = request_of(endpoint, **{name: value}, user="u")
    assert list(request.fields) == [*body_of(endpoint), "user"]


def test_a_field_that_came_twice_or_in_escapes_is_dropped_too() -> None:
    body = rb'{"kv_transfer_params":1,"model":"m","kv\u005ftransfer_params":2,"messages":[],"kv_transfer_params":3}'
    assert list(parse(CHAT, body).fields) == ["model", "messages"]


def test_the_last_of_two_counts() -> None:
    request = parse(CHAT, b'{"model":"a","messages":[1],"stream":true,"model":"b","messages":[2],"stream":false}')
    assert (request.model, bytes(request.fields["messages"]), request.stream) == ("b", b"[2]", False)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'{"kv_transfer_params": "evil", "seed": 1.0}', b'{"seed":1.0}'),
        (rb'{"kv\u005ftransfer_params": "evil"}', b"{}"),
        (b'{"ec_transfer_params": 1, "b": [1e400]}', b'{"b":[1e400]}'),
        (b'{"a": 1.0,  "b":"\\u00e9"}', b'{"a": 1.0,  "b":"\\u00e9"}'),
        (b"null", b"null"),
        (b"[1]", b"[1]"),
    ],
)
def test_extra_arguments_may_not_steer_either(sent: bytes, kept: bytes) -> None:
    request = parse(CHAT, b'{"model":"m","messages":[],"vllm_xargs":' + sent + b"}")
    assert bytes(request.fields["vllm_xargs"]) == kept


@pytest.mark.parametrize("text", ["1", "1.0", "1e400", "-0", "123456789012345678901234567890", "0.10", "1E5"])
def test_numbers_stay_as_they_were_written(text: str) -> None:
    request = parse(CHAT, f'{{"model":"m","messages":[],"x": {text} }}'.encode())
    assert bytes(request.fields["x"]) == text.encode()


@pytest.mark.parametrize(
    "text", [r'"\u00e9"', '"é"', r'"\ud83d\ude00"', '{"b": 1,\n "a" :[ ], "b": 2}', r'"\/"', '"\\u0000"']
)
def test_strings_and_objects_stay_as_they_were_written(text: str) -> None:
    request = parse(CHAT, f'{{"model":"m","messages":[],"x": {text}\n}}'.encode())
    assert bytes(request.fields["x"]) == text.encode()


@pytest.mark.parametrize(
    ("value", "given_", "has"),
    [
        (None, False, False),
        (False, True, False),
        (0, True, True),
        ("", True, True),
        (True, True, True),
        ([], True, True),
    ],
)
def test_given_and_has(value: Any, given_: bool, has: bool) -> None:
    request = chat(x=value)
    assert (request.given("x"), request.has("x")) == (given_, has)
    assert not request.given("y")
    assert not request.has("y")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("-1.0", -1),
        ('"-1"', -1),
        ('" -1 "', -1),
        ('"2.0"', 2),
        ('"2."', 2),
        ('" -1.00 "', -1),
        ('"1.5"', None),
        ("true", 1),
        ("0", 0),
        ("1.5", None),
        ("1e400", None),
        ("1e300", int(1e300)),
        ("null", None),
        ('"one"', None),
        ("[1]", None),
        ("{}", None),
    ],
)
def test_integers_are_read_as_loosely_as_engines_read_them(text: str, value: int | None) -> None:
    request = parse(COMPLETIONS, f'{{"model":"m","prompt":"","x":{text}}}'.encode())
    assert request.integer("x") == value
    assert completion().integer("x") is None


JUDGED = ("stream", "stream_options", "vllm_xargs", *ASKS)
"""Fields that mean something here, so that not every value will do. Their names may come up by chance."""


@example({"modalities": []}, True, None)
@given(st.dictionaries(st.text(), json_values, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_every_other_field_is_kept_in_order(extra: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    body = {**extra, **body_of(CHAT), **dict.fromkeys(DROPPED)}
    body.update(dict.fromkeys(JUDGED))
    request = parse(CHAT, json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode())
    kept = {name: value for name, value in body.items() if name not in DROPPED}
    assert list(request.fields) == list(kept)
    assert {name: json.loads(bytes(raw)) for name, raw in request.fields.items()} == kept


@given(st.binary() | st.text().map(str.encode) | json_values.map(lambda v: json.dumps(v).encode()))
def test_anything_else_is_the_clients_error(body: bytes) -> None:
    for endpoint in ENDPOINTS:
        with pytest.raises(BadRequest) as caught:
            parse(endpoint, body)
        assert caught.value.status == 400
