"""The prefill body and the decode body, field by field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.wire import decode_body, legs, parse, prefill_body
from gateway.wire.added import DROPPED
from gateway.wire.legs import takes_prompt_ids
from gateway.wire.modalities import ASKS
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import (
    ENDPOINTS,
    PROMPTS,
    body_of,
    chat,
    completion,
    json_values,
    raw_fields,
    request_of,
    table_names,
)

ABSENT = object()
TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}
TO_DECODE = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_host": "é", "x": None, "y": 2**63}

CHANGED: list[tuple[str, Any, Any]] = [
    ("max_tokens", 50, 1),
    ("max_tokens", None, 1),
    ("max_completion_tokens", 50, 1),
    ("max_completion_tokens", None, 1),
    ("max_output_tokens", 50, 1),
    ("min_tokens", 100, 1),
    ("min_tokens", 0, 1),
    ("ignore_eos", False, True),
    ("n", 3, 1),
    ("n", None, 1),
    ("stream", True, False),
    ("stream", None, False),
    ("allowed_token_ids", [2], ABSENT),
    ("best_of", 5, ABSENT),
    ("echo", True, ABSENT),
    ("logprobs", True, ABSENT),
    ("logprobs", 3, ABSENT),
    ("top_logprobs", 3, ABSENT),
    ("logprob_token_ids", [1, 2], ABSENT),
    ("min_completion_tokens", 7, ABSENT),
    ("return_prompt_text", True, ABSENT),
    ("stop", ["END"], ABSENT),
    ("stop_token_ids", [2], ABSENT),
    ("structured_outputs", {"choice": ["a"]}, ABSENT),
    ("guided_json", {}, ABSENT),
    ("guided_regex", "a+", ABSENT),
    ("guided_choice", ["a"], ABSENT),
    ("guided_grammar", "g", ABSENT),
    ("guided_decoding_backend", "b", ABSENT),
    ("guided_whitespace_pattern", "w", ABSENT),
]
"""Field, the client's value, prefill's."""

KEPT: list[tuple[str, Any]] = [
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    ("tool_choice", "none"),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("parallel_tool_calls", False),
    ("response_format", {"type": "json_object"}),
    ("reasoning_effort", "low"),
    ("include_reasoning", False),
    ("thinking_token_budget", 0),
    ("chat_template", "{{ x }}"),
    ("chat_template_kwargs", {"enable_thinking": False}),
    ("add_generation_prompt", False),
    ("continue_final_message", True),
    ("add_special_tokens", True),
    ("documents", [{"title": "t", "text": "x"}]),
    ("truncate_prompt_tokens", 10),
    ("truncation_side", "left"),
    ("mm_processor_kwargs", {"fps": 2}),
    ("media_io_kwargs", {"video": {"num_frames": 2}}),
    ("modalities", ["text"]),
    ("suffix", "end"),
    ("cache_salt", "salt"),
    ("priority", 3),
    ("session_id", "s"),
    ("vllm_xargs", {"a": 1.0}),
    ("seed", 2**63 - 1),
    ("temperature", 0.1),
    ("logit_bias", {"7": -100}),
    ("bad_words", ["zz"]),
    ("repetition_penalty", 1.1),
    ("repetition_detection", {"max_pattern_size": 3, "min_count": 2}),
    ("return_tokens_as_token_ids", True),
    ("stream_interval", 4),
    ("skip_special_tokens", False),
    ("include_stop_str_in_output", True),
    ("user", "zoë"),
    ("x_vendor", {"a": [1, 2.5, None, "é", {"b": False}]}),
]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(("name", "sent", "on_prefill"), CHANGED)
def test_what_prefill_sees_differently(endpoint: str, name: str, sent: Any, on_prefill: Any) -> None:
    request = request_of(endpoint, **{name: sent})
    assert json.loads(prefill_body(request, None)).get(name, ABSENT) == on_prefill
    assert json.loads(decode_body(request, None, None))[name] == sent


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(("name", "sent"), KEPT)
def test_what_both_legs_see_alike(endpoint: str, name: str, sent: Any) -> None:
    request = request_of(endpoint, **{name: sent})
    assert json.loads(prefill_body(request, None))[name] == sent
    assert json.loads(decode_body(request, None, None))[name] == sent


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_stream_options_are_decodes_alone(endpoint: str) -> None:
    request = request_of(endpoint, stream=True, stream_options={"include_usage": True})
    assert "stream_options" not in json.loads(prefill_body(request, None))
    assert json.loads(decode_body(request, None, None))["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_least_body(endpoint: str) -> None:
    request = request_of(endpoint)
    asked = {"return_token_ids": True} if endpoint == CHAT else {}
    assert json.loads(prefill_body(request, TO_PREFILL)) == {
        **body_of(endpoint),
        "max_tokens": 1,
        "min_tokens": 1,
        "ignore_eos": True,
        "n": 1,
        "stream": False,
        **asked,
        "kv_transfer_params": TO_PREFILL,
    }
    assert json.loads(decode_body(request, TO_DECODE, None)) == {**body_of(endpoint), "kv_transfer_params": TO_DECODE}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_without_parameters_neither_leg_gets_any(endpoint: str) -> None:
    request = request_of(endpoint, kv_transfer_params={"remote_host": "evil"})
    assert "kv_transfer_params" not in json.loads(prefill_body(request, None))
    assert "kv_transfer_params" not in json.loads(decode_body(request, None, b"[1]"))


def test_parameters_are_the_connectors_not_the_clients() -> None:
    request = chat(kv_transfer_params={"remote_host": "evil", "more": 1})
    assert json.loads(prefill_body(request, TO_PREFILL))["kv_transfer_params"] == TO_PREFILL
    assert json.loads(decode_body(request, TO_DECODE, None))["kv_transfer_params"] == TO_DECODE


def test_prompt_ids_go_to_decode_beside_the_parameters() -> None:
    params = dict(TO_DECODE)
    body = decode_body(chat(), params, b"[1, 22,333]")
    assert json.loads(body)["kv_transfer_params"] == {**TO_DECODE, "prompt_token_ids": [1, 22, 333]}
    assert b"[1, 22,333]" in body
    assert params == TO_DECODE


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (chat(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]), True),
        (chat(messages=[{"role": "user", "content": [{"image_url": {"url": "data:image/png;base64,AA"}}]}]), False),
        (chat(return_prompt_text=True), False),
        (chat(return_prompt_text=False), True),
        (chat(return_token_ids=False), True),
        (chat(return_token_ids=True, return_prompt_text=True), False),
        (completion(return_token_ids=True), False),
        (completion(prompt=[1, 2, 3]), False),
    ],
)
def test_ids_are_asked_for_only_where_decode_takes_them(request_: Any, asked: bool) -> None:
    assert takes_prompt_ids(request_) is asked
    assert json.loads(prefill_body(request_, None)).get("return_token_ids", False) is asked
    wanted = json.loads(bytes(request_.fields.get("return_token_ids", b"null")))
    assert json.loads(decode_body(request_, None, None)).get("return_token_ids") is wanted


@example(CHAT, {"modalities": [], "audio": 1}, True, None)
@given(
    st.sampled_from(ENDPOINTS),
    st.dictionaries(st.text() | st.sampled_from(sorted(legs.SET)), json_values, max_size=8),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_decode_is_the_clients_body_but_for_the_parameters(
    endpoint: str, extra: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    sent = {**extra, "model": "m", "stream": True, "stream_options": None, **PROMPTS[endpoint]}
    sent = {name: value for name, value in sent.items() if name not in (*DROPPED, *ASKS, "vllm_xargs")}
    text = json.dumps(sent, ensure_ascii=ascii_only, indent=indent).encode()
    request = parse(endpoint, text)
    got = raw_fields(decode_body(request, TO_DECODE, b"[5]"))
    assert msgspec.json.decode(got.pop("kv_transfer_params")) == {**TO_DECODE, "prompt_token_ids": [5]}
    assert list(got.items()) == list(raw_fields(text).items())
    assert list(raw_fields(decode_body(request, None, None)).items()) == list(raw_fields(text).items())


@example(CHAT, {"modalities": [], "audio": 1})
@given(st.sampled_from(ENDPOINTS), st.dictionaries(st.text(), json_values, max_size=8))
def test_prefill_keeps_every_field_that_no_rule_names(endpoint: str, extra: dict[str, Any]) -> None:
    ruled = {*legs.SET, *legs.SET_IF_GIVEN, *legs.DROPPED_ON_PREFILL, *DROPPED, *ASKS, "vllm_xargs"}
    sent = {k: v for k, v in extra.items() if k not in ruled and not k.startswith(legs.DROPPED_PREFIX)}
    text = json.dumps({**sent, **body_of(endpoint)}).encode()
    got = raw_fields(prefill_body(parse(endpoint, text), TO_PREFILL))
    assert {name: raw for name, raw in got.items() if name in raw_fields(text)} == raw_fields(text)
    assert got.keys() - raw_fields(text).keys() <= {*legs.SET, "return_token_ids", "kv_transfer_params"}


def test_the_documented_table_is_the_code() -> None:
    code = {*legs.SET, *legs.SET_IF_GIVEN, *legs.DROPPED_ON_PREFILL, f"{legs.DROPPED_PREFIX}*"}
    assert table_names(legs.__doc__) == code
    assert {name if not name.startswith(legs.DROPPED_PREFIX) else "guided_*" for name, *_ in CHANGED} | {
        "stream_options",
        "return_token_ids",
    } == code


def test_completions_have_no_messages_to_look_at() -> None:
    assert not takes_prompt_ids(parse(COMPLETIONS, b'{"model":"m","prompt_embeds":"AAAA"}'))
