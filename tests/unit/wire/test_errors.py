"""Errors of ours and of engines, in OpenAI's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import errors as tree
from common.errors import DuetError, EngineError, EngineRefused, HandoffInvalid
from gateway.wire.errors import (
    BUSY_RETRY_AFTER,
    MAX_MESSAGE,
    MAX_RETRY_AFTER,
    error_reply,
    refusal,
    refused,
    stream_error,
)

TOO_LONG = "This model's maximum context length is 2048 tokens. However, your prompt contains 3000 input tokens."


def made(kind: type[DuetError]) -> DuetError:
    if kind is EngineRefused:
        return EngineRefused('it said "no"', engine="e:1", status=418)
    if issubclass(kind, EngineError):
        return kind('it said "no"', engine="e:1")
    return kind('it said "no"')


KINDS = [value for value in vars(tree).values() if isinstance(value, type) and issubclass(value, DuetError)]


def vllm_error(message: str, code: Any, param: str | None = None, type_: str = "BadRequestError") -> bytes:
    return json.dumps({"error": {"message": message, "type": type_, "param": param, "code": code}}).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_body_in_openais_shape(kind: type[DuetError]) -> None:
    error = made(kind)
    status, headers, body = error_reply(error)
    shape = json.loads(body)
    assert shape.keys() == {"error"}
    assert shape["error"].keys() == {"message", "type", "param", "code"}
    assert shape["error"]["message"] == 'it said "no"'
    assert isinstance(shape["error"]["code"], str | None)
    assert isinstance(shape["error"]["type"], str)
    assert status == error.status >= 400
    named = dict(headers)
    assert len(named) == len(headers)
    assert named[b"content-type"] == b"application/json"
    assert int(named[b"content-length"]) == len(body)


def test_the_field_at_fault() -> None:
    body = error_reply(tree.BadRequest("model is 7", param="model"))[2]
    assert json.loads(body)["error"] == {
        "message": "model is 7",
        "type": "invalid_request_error",
        "param": "model",
        "code": "invalid_request",
    }


@pytest.mark.parametrize(("seconds", "whole", "ms"), [(2.0, b"2", b"2000"), (0.25, b"1", b"250"), (0.0, b"0", b"0")])
def test_retry_after(seconds: float, whole: bytes, ms: bytes) -> None:
    error = tree.NoRoutableEngine("none")
    error.retry_after = seconds
    headers = dict(error_reply(error)[1])
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (whole, ms)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_which_errors_clients_should_not_repeat(kind: type[DuetError]) -> None:
    headers = dict(error_reply(made(kind))[1])
    pointless = {tree.DuetError, tree.ConfigurationError, tree.IllegalTransition}
    assert headers.get(b"x-should-retry") == (b"false" if kind in pointless else None)


def test_what_no_engine_can_do_is_not_repeated_either() -> None:
    assert dict(error_reply(refusal("e", 501, b"not here"))[1])[b"x-should-retry"] == b"false"


def test_unauthorized_says_how() -> None:
    assert dict(error_reply(tree.Unauthorized("no key"))[1])[b"www-authenticate"] == b"Bearer"


def test_an_error_in_a_stream_is_an_event_and_the_end() -> None:
    event, done, rest = stream_error(tree.EngineBroken('a\n"b"', engine="e")).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert json.loads(event.removeprefix(b"data: "))["error"] == {
        "message": 'a\n"b"',
        "type": "engine_error",
        "param": None,
        "code": "engine_broken",
    }


REFUSALS: list[tuple[int, bytes, dict[str, Any]]] = [
    (
        400,
        vllm_error(TOO_LONG, 400, "input_tokens"),
        {
            "message": TOO_LONG,
            "type": "invalid_request_error",
            "param": "input_tokens",
            "code": "context_length_exceeded",
        },
    ),
    (
        400,
        vllm_error("Input length (9) exceeds model's maximum context length (8).", 400),
        {"code": "context_length_exceeded", "param": None},
    ),
    (400, vllm_error("n must be at least 1, got 0.", 400), {"code": None, "type": "invalid_request_error"}),
    (
        404,
        vllm_error("The model `x` does not exist.", 404, "model", "NotFoundError"),
        {"message": "The model `x` does not exist.", "code": "model_not_found", "param": "model"},
    ),
    (404, b'{"detail":"Not Found"}', {"message": "Not Found", "code": None, "type": "invalid_request_error"}),
    (
        422,
        b'{"detail":[{"loc":["body","n"],"msg":"bad"}]}',
        {"message": '[{"loc":["body","n"],"msg":"bad"}]', "code": None},
    ),
    (429, vllm_error("slow down", 429), {"type": "rate_limit_error", "code": None}),
    (400, b'{"object":"error","message":"old shape","type":"BadRequestError","code":400}', {"message": "old shape"}),
    (400, b'{"error":"just text"}', {"message": "just text"}),
    (400, b'{"error":null,"detail":"both"}', {"message": "both"}),
    (400, vllm_error("named", "some_code"), {"code": "some_code"}),
    (400, vllm_error("digits", "400"), {"code": None}),
    (400, b'{"error":{"message":null,"param":7}}', {"message": '{"error":{"message":null,"param":7}}', "param": None}),
    (500, vllm_error("EngineCore encountered an issue.", 500), {"type": "engine_error", "code": "engine_error"}),
    (500, b"Internal Server Error", {"message": "Internal Server Error", "code": "engine_error"}),
    (502, b"", {"message": "engine e:1 answered with status 502"}),
    (503, b"<html>busy\xff</html>\n", {"message": "<html>busy\ufffd</html>"}),
    (400, b"{}", {"message": "{}"}),
    (400, b"[" * 100_000, {"message": "[" * MAX_MESSAGE + " ..."}),
]


@pytest.mark.parametrize(("status", "body", "expected"), REFUSALS)
def test_an_engines_refusal_keeps_its_words(status: int, body: bytes, expected: dict[str, Any]) -> None:
    error = refusal("e:1", status, body)
    assert isinstance(error, EngineRefused)
    assert (error.status, error.engine) == (status, "e:1")
    told = json.loads(error_reply(error)[2])["error"]
    assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize("status", [401, 403])
def test_the_gateways_own_key_is_no_fault_of_the_client(status: int) -> None:
    error = refusal("e:1", status, b'{"error":"Unauthorized"}')
    assert not isinstance(error, EngineRefused)
    assert error.status == 502
    assert "refused the gateway with status" in error.message
    assert "Unauthorized" in error.message


@pytest.mark.parametrize("status", [100, 201, 204, 302, 600])
def test_a_status_that_is_neither_good_nor_an_error(status: int) -> None:
    error = refusal("e:1", status, b"x")
    assert (error.status, error.message) == (502, f"engine e:1 answered with status {status}; expected 200")


@pytest.mark.parametrize("param", ["kv_transfer_params", "kv_transfer_params.prompt_token_ids", "ec_transfer_params"])
def test_a_refused_handoff_is_no_fault_of_the_client(param: str) -> None:
    error = refusal("e:1", 400, vllm_error("must be a list", 400, param))
    assert isinstance(error, HandoffInvalid)
    assert (error.status, error.param) == (502, None)
    assert "must be a list" in error.message


def test_a_message_that_repeats_the_prompt_is_cut() -> None:
    error = refusal("e:1", 400, vllm_error("x" * 1_000_000, 400))
    assert error.message == "x" * MAX_MESSAGE + " ..."


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (None, BUSY_RETRY_AFTER),
        ("", BUSY_RETRY_AFTER),
        ("soon", BUSY_RETRY_AFTER),
        ("-3", BUSY_RETRY_AFTER),
        ("nan", BUSY_RETRY_AFTER),
        ("inf", BUSY_RETRY_AFTER),
        ("-inf", BUSY_RETRY_AFTER),
        ("1e999", BUSY_RETRY_AFTER),
        ("-0", 0.0),
        ("1e308", MAX_RETRY_AFTER),
        ("9" * 400, BUSY_RETRY_AFTER),
        ("3600.5", MAX_RETRY_AFTER),
        ("Wed, 21 Oct 2026 07:28:00 GMT", BUSY_RETRY_AFTER),
    ],
)
def test_a_busy_engine_says_when_to_come_back(status: int, header: str | None, seconds: float) -> None:
    error = refusal("e", status, b"busy", header)
    assert error.retry_after == seconds
    headers = dict(error_reply(error)[1])
    assert int(headers[b"retry-after"]) <= MAX_RETRY_AFTER
    assert int(headers[b"retry-after-ms"]) == seconds * 1000


@pytest.mark.parametrize("status", [400, 404, 500, 502])
def test_an_engine_that_is_not_busy_does_not(status: int) -> None:
    assert refusal("e", status, b"no", "7").retry_after is None


@pytest.mark.parametrize(
    ("code", "status"), [(404, 404), (500, 500), (503, 503), (200, 500), ("404", 500), (None, 500), (True, 500)]
)
def test_an_error_without_a_status_of_its_own(code: Any, status: int) -> None:
    assert refused("e", {"message": "m", "code": code}).status == status


@pytest.mark.parametrize("code", [400, 401, 403, 404, 408, 429, 500, 501, 503, 599])
@pytest.mark.parametrize("param", [None, "n", "kv_transfer_params"])
def test_under_a_good_status_an_error_is_what_it_would_be_under_its_own(code: int, param: str | None) -> None:
    error = {"message": "m", "param": param, "code": code}
    one, other = refused("e", error), refusal("e", code, json.dumps({"error": error}).encode())
    assert type(one) is type(other)
    assert error_reply(one) == error_reply(other)


@given(st.integers(100, 999), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_an_engine_says_becomes_a_body(status: int, body: bytes) -> None:
    told = json.loads(error_reply(refusal("e", status, body))[2])["error"]
    assert isinstance(told["message"], str)
    assert told["message"]
    assert isinstance(told["code"], str | None)


def test_an_engine_that_gives_no_reason_is_not_quoted_as_json() -> None:
    said = b'{"error":{"message":"","type":"InternalServerError","param":null,"code":500}}'
    assert refusal("e:1", 500, said).message == "engine e:1 answered with status 500"
