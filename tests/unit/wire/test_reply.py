"""Decode's whole answer on its way to the client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import EngineBroken, EngineError, EngineRefused
from gateway.wire import unary_answer
from gateway.wire.added import STEERING
from tests.unit.wire.bodies import json_values, raw_fields

USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
ANSWER = {"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], "usage": USAGE}


def test_what_has_nothing_of_ours_stays_the_same_bytes() -> None:
    body = b'{ "id":"\\u00e9", "choices" : [{"text":"a"}],\n "x": 1.0 }'
    assert unary_answer("e", body).body is body


@pytest.mark.parametrize("value", [None, {"remote_host": "10.0.0.1"}])
@pytest.mark.parametrize("name", sorted(STEERING))
def test_what_is_the_engines_business_is_taken_out(name: str, value: Any) -> None:
    answer = unary_answer("e", json.dumps({name: value, **ANSWER, "metrics": None}).encode())
    assert json.loads(answer.body) == {**ANSWER, "metrics": None}
    assert answer.usage == USAGE


def test_token_ids_that_the_client_asked_for_stay() -> None:
    asked = {**ANSWER, "prompt_token_ids": [1, 2, 3], "prompt_text": "p"}
    assert json.loads(unary_answer("e", json.dumps({**asked, "kv_transfer_params": None}).encode()).body) == asked


def test_no_usage() -> None:
    assert unary_answer("e", b'{"choices":[{"finish_reason":null}]}').usage is None
    assert unary_answer("e", b'{"choices":[{}],"usage":null}').usage is None


@given(st.dictionaries(st.text(), json_values, max_size=6), st.booleans())
def test_every_other_field_stays_the_bytes_that_came(extra: dict[str, Any], ascii_only: bool) -> None:
    extra.pop("error", None)
    body = json.dumps({**extra, "kv_transfer_params": {"a": 1}, **ANSWER}, ensure_ascii=ascii_only).encode()
    expected = {name: raw for name, raw in raw_fields(body).items() if name not in STEERING}
    assert list(raw_fields(unary_answer("e", body).body).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no completion"),
        (b'{"choices":[{"finish_reason":"sto', "no completion"),
        (b"[]", "no completion"),
        (b'{"choices":[{"text":"\xff\xfe"}]}', "no completion"),
        (b'{"choices":3}', "no completion"),
        (b'{"choices":[{"finish_reason":3}]}', "no completion"),
        (b'{"choices":[{}],"usage":[]}', "no completion"),
        (b"{}", "no choice"),
        (b'{"choices":[]}', "no choice"),
        (b'{"choices":[{},{"finish_reason":"error"}]}', "ended the answer with finish_reason error"),
        (b'{"choices":[{"finish_reason":"abort"}]}', "ended the answer with finish_reason abort"),
    ],
)
def test_no_answer(body: bytes, message: str) -> None:
    with pytest.raises(EngineBroken, match=f"engine e .*{message}"):
        unary_answer("e", body)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ({"message": "no", "type": "BadRequestError", "param": None, "code": 400}, 400, "^no$"),
        ({"message": "broke", "code": 200}, 500, "^broke$"),
        ({"code": True}, 500, "engine e answered with status 500"),
        ("just text", 500, "^just text$"),
        ([1, 2], 500, r"^\[1,2\]$"),
    ],
)
def test_an_error_under_a_good_status(error: Any, status: int, message: str) -> None:
    with pytest.raises(EngineRefused, match=message) as caught:
        unary_answer("e", json.dumps({"error": error}).encode())
    assert caught.value.status == status


@pytest.mark.parametrize("code", [401, 403])
def test_the_gateways_own_key_is_no_fault_of_the_client_under_a_good_status_either(code: int) -> None:
    for reply in ({"error": {"message": "m", "code": code}}, {"object": "error", "message": "m", "code": code}):
        with pytest.raises(EngineError, match=f"engine e refused the gateway with status {code}: m") as caught:
            unary_answer("e", json.dumps(reply).encode())
        assert (caught.value.status, type(caught.value)) == (502, EngineError)


def test_old_engines_have_no_error_around_what_went_wrong() -> None:
    told = {"object": "error", "message": "old", "type": "BadRequestError", "param": "n", "code": 400}
    with pytest.raises(EngineRefused, match=r"^old$") as caught:
        unary_answer("e", json.dumps(told).encode())
    assert (caught.value.status, caught.value.param) == (400, "n")


def test_an_error_goes_before_whatever_stands_beside_it() -> None:
    with pytest.raises(EngineRefused, match=r"^m$"):
        unary_answer("e", b'{"choices":3,"usage":[],"error":{"message":"m","code":400}}')


def test_an_error_field_that_is_null_is_none() -> None:
    assert unary_answer("e", json.dumps({**ANSWER, "error": None}).encode()).usage == USAGE
