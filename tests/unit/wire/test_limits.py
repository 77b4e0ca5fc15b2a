"""What is refused before any engine is asked, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadRequest, MalformedBody
from gateway.wire import check_budget, check_fields, parse
from gateway.wire.request import CHAT, COMPLETIONS
from gateway.wire.shape import MAX_DEPTH, MAX_FIELDS, MAX_NESTED, check_shape
from tests.unit.wire.bodies import request_of

WRONG: list[tuple[str, str, Any]] = [
    (CHAT, "stop", 5),
    (CHAT, "stop", ["a", 1]),
    (COMPLETIONS, "stop", {"a": 1}),
    (CHAT, "stop_token_ids", "7"),
    (CHAT, "stop_token_ids", [1.5]),
    (COMPLETIONS, "structured_outputs", True),
    (CHAT, "structured_outputs", "json"),
    (CHAT, "logprobs", 3),
    (CHAT, "top_logprobs", "many"),
    (COMPLETIONS, "logprobs", []),
    (CHAT, "n", "many"),
    (CHAT, "max_tokens", 1.5),
    (CHAT, "max_tokens", "9" * 5000),
    (CHAT, "max_completion_tokens", [5]),
    (CHAT, "min_tokens", {}),
    (CHAT, "ignore_eos", "perhaps"),
    (CHAT, "allowed_token_ids", 7),
    (CHAT, "logprob_token_ids", "7"),
    (COMPLETIONS, "logprob_token_ids", [1.5]),
    (CHAT, "top_logprobs", "3"),
    (CHAT, "return_prompt_text", "perhaps"),
]
RIGHT: list[tuple[str, str, Any]] = [
    (CHAT, "stop", None),
    (CHAT, "stop", "END"),
    (CHAT, "stop", ["a", "b"]),
    (CHAT, "stop_token_ids", [1, "2", 3.0]),
    (COMPLETIONS, "structured_outputs", {"json": {}}),
    (CHAT, "logprobs", "true"),
    (COMPLETIONS, "logprobs", 3),
    (COMPLETIONS, "logprobs", True),
    (CHAT, "max_tokens", "5"),
    (CHAT, "ignore_eos", 1),
    (CHAT, "n", 2.0),
    (CHAT, "logprob_token_ids", [1, "2", 3.0]),
    (CHAT, "top_logprobs", 3),
    (CHAT, "return_prompt_text", "yes"),
]


@pytest.mark.parametrize(("endpoint", "name", "value"), WRONG)
def test_a_field_that_only_decode_would_refuse_is_named(endpoint: str, name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"{name} is .*; expected") as caught:
        check_fields(request_of(endpoint, **{name: value}))
    assert caught.value.param == name


@pytest.mark.parametrize(("endpoint", "name", "value"), RIGHT)
def test_what_an_engine_reads_loosely_passes(endpoint: str, name: str, value: Any) -> None:
    check_fields(request_of(endpoint, **{name: value}))


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("seed", ["many", "5", 1.5, 2**63, -(2**63) - 1, 10**40, True, [1], {}])
def test_a_seed_that_would_end_an_engine_is_named(endpoint: str, seed: Any) -> None:
    with pytest.raises(BadRequest, match=r"vllm_xargs\.tts_local_seed is .*; expected an integer") as caught:
        check_fields(request_of(endpoint, vllm_xargs={"a": 1, "tts_local_seed": seed}))
    assert caught.value.param == "vllm_xargs.tts_local_seed"


@pytest.mark.parametrize(
    "extra", [None, {}, 5, [1], {"a": "x"}, *({"tts_local_seed": seed} for seed in (None, 0, 2**63 - 1, -(2**63)))]
)
def test_other_extra_arguments_are_the_engines_business(extra: Any) -> None:
    check_fields(request_of(CHAT, vllm_xargs=extra))


@pytest.mark.parametrize(
    ("endpoint", "fields", "name"),
    [
        (CHAT, {"max_tokens": 2049}, "max_tokens"),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 4000}, "max_completion_tokens"),
        (COMPLETIONS, {"max_tokens": "99999"}, "max_tokens"),
        (COMPLETIONS, {"max_tokens": 10**30}, "max_tokens"),
    ],
)
def test_a_budget_beyond_the_context_is_refused(endpoint: str, fields: dict[str, Any], name: str) -> None:
    request = request_of(endpoint, **fields)
    with pytest.raises(BadRequest, match=f"{name}=.* cannot be greater than max_model_len=2048") as caught:
        check_budget(request, 2048)
    assert caught.value.param == name
    check_budget(request, None)


def test_a_budget_up_to_the_context_is_the_engines_business() -> None:
    check_budget(request_of(CHAT, max_tokens=2048), 2048)
    check_budget(request_of(CHAT, max_tokens=9999, max_completion_tokens=7), 2048)
    check_budget(request_of(CHAT), 2048)


def nested(depth: int, opening: bytes = b'{"a":', inner: bytes = b"1", closing: bytes = b"}") -> bytes:
    return opening * depth + inner + closing * depth


@pytest.mark.parametrize("opening_and_closing", [(b'{"a":', b"}"), (b"[", b"]"), (b'[{"x":', b"}]")])
def test_a_body_that_is_nested_too_deeply_is_refused(opening_and_closing: tuple[bytes, bytes]) -> None:
    opening, closing = opening_and_closing
    levels = MAX_DEPTH // (opening.count(b"[") + opening.count(b"{"))
    check_shape(nested(levels, opening, b"1", closing))
    with pytest.raises(MalformedBody, match="nested too deeply"):
        check_shape(nested(levels + 1, opening, b"1", closing))


def test_brackets_in_strings_are_text() -> None:
    check_shape(json.dumps({"a": "[" * 5000 + '"{' * 500 + "\\"}).encode())


def test_a_body_in_too_many_pieces_is_refused() -> None:
    with pytest.raises(MalformedBody, match="lists and objects"):
        check_shape(b"[" + b"[]," * (MAX_NESTED + 1) + b"1]")


@given(st.binary(max_size=400))
def test_what_is_no_json_is_not_its_business(body: bytes) -> None:
    check_shape(body * 3)


def test_too_many_fields_are_refused() -> None:
    body = {"model": "m", "prompt": "x", **{f"f{n}": n for n in range(MAX_FIELDS)}}
    with pytest.raises(MalformedBody, match="fields"):
        parse(COMPLETIONS, json.dumps(body).encode())
