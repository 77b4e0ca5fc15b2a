"""Our rules against vLLM's own request classes: what is legal for a client stays legal on both legs, and both legs
make the same prompt. Nothing is computed here: the classes need no engine."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import BadRequest
from gateway.wire import ClientRequest, check_fields, decode_body, parse, prefill_body, unsplit_reason
from gateway.wire.legs import takes_prompt_ids
from gateway.wire.limits import CHECKS
from gateway.wire.parts import MEDIA_KEYS, TEXT_TYPES
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import ENDPOINTS, body_of, request_of
from tests.unit.wire.test_identity import BESIDE_NULLS, DOWNLOADED, asked

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

MODEL = SimpleNamespace(max_model_len=2048)
LONG = 5000
"""Tokens of a prompt that does not fit."""
IDS = [5, 6, 7]
TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}
TO_DECODE = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1]]}

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]

COMMON: dict[str, list[Any]] = {
    "temperature": [None, 0, 0.7],
    "top_p": [0.9],
    "top_k": [-1, 0, 40],
    "min_p": [0.1],
    "seed": [None, 7, -1, 2**63 - 1],
    "n": [1, 2, 3],
    "best_of": [1, 4],
    "stop": [None, [], "END", ["a", "b"]],
    "stop_token_ids": [None, [], [2]],
    "include_stop_str_in_output": [True],
    "ignore_eos": [True, False],
    "min_tokens": [0, 1, 4],
    "frequency_penalty": [0.5],
    "presence_penalty": [-0.5],
    "repetition_penalty": [1.1],
    "logit_bias": [None, {"7": -100}],
    "bad_words": [["zz"]],
    "allowed_token_ids": [None, [2, 3]],
    "prompt_logprobs": [None, 0, 1],
    "use_beam_search": [False, True],
    "length_penalty": [0.5],
    "skip_special_tokens": [False],
    "spaces_between_special_tokens": [False],
    "truncate_prompt_tokens": [None, -1, 1, 10, 2048],
    "truncation_side": [None, "left", "right"],
    "add_special_tokens": [True, False],
    "response_format": [None, {"type": "text"}, {"type": "json_object"}, SCHEMA],
    "structured_outputs": [None, {"choice": ["a", "b"]}, {"regex": "a+"}, {"json": {"type": "object"}}],
    "guided_json": [{"type": "object"}],
    "priority": [0, 3],
    "request_id": ["mine"],
    "session_id": ["s"],
    "return_token_ids": [None, True, False],
    "return_tokens_as_token_ids": [True],
    "cache_salt": [None, "salt"],
    "kv_transfer_params": [None, {"do_remote_prefill": True, "remote_host": "evil"}],
    "ec_transfer_params": [{"a": 1}],
    "vllm_xargs": [None, {"a": 1, "b": ["x"]}],
    "repetition_detection": [{"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 2}],
    "thinking_token_budget": [None, -1, 0, 64],
    "stream": [None, True, False],
    "stream_options": [None, {}, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}],
    "stream_interval": [4],
    "user": ["u"],
    "x_vendor": [{"a": 1}],
}
FIELDS: dict[str, dict[str, list[Any]]] = {
    CHAT: {
        **COMMON,
        "max_tokens": [None, 1, 16],
        "max_completion_tokens": [None, 1, 16],
        "logprobs": [None, True, False],
        "top_logprobs": [None, 0, 3, -1],
        "logprob_token_ids": [None, [1, 2]],
        "messages": [IMAGE, [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]],
        "tools": [None, TOOLS],
        "tool_choice": [None, "none", "auto", "required", {"type": "function", "function": {"name": "f"}}],
        "parallel_tool_calls": [False],
        "reasoning_effort": [None, "low"],
        "include_reasoning": [False],
        "echo": [False, True],
        "add_generation_prompt": [True, False],
        "continue_final_message": [True, False],
        "documents": [[{"title": "t", "text": "x"}]],
        "chat_template": ["{{ messages }}"],
        "chat_template_kwargs": [{"enable_thinking": False}],
        "media_io_kwargs": [{"video": {"num_frames": 2}}],
        "mm_processor_kwargs": [{"fps": 2}],
        "return_prompt_text": [True],
    },
    COMPLETIONS: {
        **COMMON,
        "max_tokens": [None, 0, 1, 16],
        "logprobs": [None, 0, 3, -1],
        "logprob_token_ids": [None, [1, 2]],
        "prompt": ["a", "", ["a"], ["a", "b"], [1, 2], [[1, 2]], [[1], [2]]],
        "prompt_embeds": [None, "AAAA"],
        "echo": [None, False, True],
        "suffix": [None, "end"],
    },
}
ALONE = [(endpoint, name, value) for endpoint in ENDPOINTS for name, all_ in FIELDS[endpoint].items() for value in all_]


@pytest.fixture(scope="module", autouse=True)
def vllm_classes() -> None:
    """Imports them once, and within no test's time."""
    import vllm.entrypoints.openai.chat_completion.protocol
    import vllm.entrypoints.openai.completion.protocol
    import vllm.renderers.online_renderer  # noqa: F401


def vllm_request(endpoint: str, body: bytes) -> Any:
    """The body as vLLM takes it; raises as it does for one that it refuses, in its handler's order."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.serve.utils.api_utils import get_max_tokens

    request = (ChatCompletionRequest if endpoint == CHAT else CompletionRequest).model_validate_json(body)
    limit = request.max_tokens
    if endpoint == CHAT and request.max_completion_tokens is not None:
        limit = request.max_completion_tokens
    request.build_tok_params(MODEL)
    length = get_max_tokens(MODEL.max_model_len, limit, 10, {}, None, request.truncate_prompt_tokens)
    if request.use_beam_search:
        request.to_beam_search_params(length, {})
    else:
        request.to_sampling_params(length, {})
    return request


def legal(endpoint: str, body: dict[str, Any]) -> bool:
    """Whether one unsplit engine takes it, the steering fields aside."""
    from pydantic import ValidationError
    from vllm.exceptions import VLLMValidationError

    try:
        vllm_request(endpoint, decode_body(parse(endpoint, json.dumps(body).encode()), None, None))
    except (ValidationError, VLLMValidationError, ValueError):
        return False
    return True


def both_legs(request: ClientRequest) -> tuple[Any, Any]:
    ids = json.dumps(IDS).encode() if takes_prompt_ids(request) else None
    return (
        vllm_request(request.endpoint, prefill_body(request, TO_PREFILL)),
        vllm_request(request.endpoint, decode_body(request, TO_DECODE, ids)),
    )


def prompt_of(request: Any) -> dict[str, Any]:
    """All that vLLM makes a prompt of, and how it cuts one that is too long."""
    tokens = request.build_tok_params(MODEL)
    shape: dict[str, Any] = {
        "encode": tokens.get_encode_kwargs(),
        "cut": tokens._truncation_slice(None, LONG),
        "salt": request.cache_salt,
    }
    if hasattr(request, "messages"):
        tools = request.tools and [tool.model_dump() for tool in request.tools]
        return {**shape, "messages": request.messages, "tools": tools, "chat": request.build_chat_params(None, "auto")}
    return {**shape, "prompt": request.prompt, "embeds": request.prompt_embeds, "suffix": request.suffix}


def check(endpoint: str, body: dict[str, Any]) -> None:
    request = parse(endpoint, json.dumps(body).encode())
    if unsplit_reason(request) is not None:
        vllm_request(endpoint, decode_body(request, None, None))
        return
    prefill, decode = both_legs(request)
    assert prompt_of(prefill) == prompt_of(decode)
    assert prefill.kv_transfer_params == TO_PREFILL
    assert prefill.ec_transfer_params is None
    assert decode.ec_transfer_params is None
    one = prefill.to_sampling_params(1, {})
    assert (one.max_tokens, one.min_tokens, one.n, one.ignore_eos) == (1, 1, 1, True)
    assert (one.logprobs, one.prompt_logprobs, one.stop, one.stop_token_ids) == (None, None, [], [])
    assert not prefill.stream
    assert not prefill.use_beam_search


def beside(endpoint: str, name: str, value: Any) -> dict[str, Any]:
    """What this value needs beside it to be legal."""
    match name:
        case "stream_options" if value:
            return {"stream": True}
        case "top_logprobs" | "logprob_token_ids" if value:
            return {"logprobs": True if endpoint == CHAT else 1}
        case "tool_choice" if value not in (None, "none"):
            return {"tools": TOOLS}
        case "continue_final_message":
            return {"add_generation_prompt": not value}
        case "max_tokens" if value == 0:
            return {"echo": True}
        case "prompt" if not value:
            return {"prompt_embeds": "AAAA"}
    return {}


@pytest.mark.parametrize(("endpoint", "name", "value"), ALONE)
def test_each_legal_value_alone(endpoint: str, name: str, value: Any) -> None:
    body = body_of(endpoint, **beside(endpoint, name, value), **{name: value})
    assert legal(endpoint, body), "not a legal value: the table is wrong"
    check(endpoint, body)


def bodies(endpoint: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: st.sampled_from(values) for name, values in FIELDS[endpoint].items()}
    some = st.sets(st.sampled_from(sorted(fields)), max_size=6)
    return some.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_legal_values_together(endpoint: str, data: st.DataObject) -> None:
    body = body_of(endpoint, **data.draw(bodies(endpoint)))
    if body.get("stream_options") and not body.get("stream"):
        body["stream"] = True
    if legal(endpoint, body):
        check(endpoint, body)


class _Renderer:
    def validate_token_ids(self, ids: list[int], *, parameter: str) -> None:
        """All are in its vocabulary."""


@pytest.mark.parametrize(("endpoint", "name", "value"), [row for row in ALONE if row[0] == CHAT])
def test_where_ids_are_sent_decode_takes_them(endpoint: str, name: str, value: Any) -> None:
    from vllm.renderers.online_renderer import _reused_prompt_token_ids

    request = request_of(endpoint, **beside(endpoint, name, value), **{name: value})
    if unsplit_reason(request) is not None:
        assert name in ("echo", "n", "prompt_logprobs", "truncate_prompt_tokens", "use_beam_search")
        return
    sent = decode_body(request, TO_DECODE, json.dumps(IDS).encode() if takes_prompt_ids(request) else None)
    decode = vllm_request(endpoint, sent)
    taken = _reused_prompt_token_ids(decode, _Renderer(), decode.messages)
    assert taken == (IDS if takes_prompt_ids(request) else None)
    assert decode.kv_transfer_params == TO_DECODE


def test_completions_do_not_look_for_ids() -> None:
    """If vLLM begins to, `takes_prompt_ids` should say yes to them."""
    from vllm.renderers.online_renderer import OnlineRenderer

    seen: list[Any] = []

    async def render(request: Any, prompts: Any, **_: Any) -> list[Any]:
        seen.extend(prompts)
        return []

    sent = decode_body(request_of(COMPLETIONS), {**TO_DECODE, "prompt_token_ids": IDS}, None)
    request = vllm_request(COMPLETIONS, sent)
    asyncio.run(
        OnlineRenderer.preprocess_completion(SimpleNamespace(preprocess_cmpl=render), request, request.prompt, None)
    )
    assert seen == [request.prompt]
    assert request.kv_transfer_params["prompt_token_ids"] == IDS


def test_every_kind_of_media_that_vllm_knows_is_seen() -> None:
    from vllm.renderers.chat_utils import MM_PARSER_MAP, TEXT_PART_TYPES

    assert TEXT_PART_TYPES | {"tool_reference"} == TEXT_TYPES
    assert set(MM_PARSER_MAP) - TEXT_TYPES == MEDIA_KEYS


loose = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, 2.5, 1e300, "1", " 2 ", "2.0", "1e1", "x", "", "true", "Yes", "off", "1_0", 2**70]),
    st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["1", "a", 2.0, 2.5, None])), max_size=2),
    st.dictionaries(st.sampled_from(["json", "regex"]), st.just("a"), max_size=1),
)


@given(data=st.data(), endpoint=st.sampled_from(ENDPOINTS), value=loose)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_gateway_refuses_no_field_that_vllm_takes(data: st.DataObject, endpoint: str, value: Any) -> None:
    """The other way round it may: what it lets through in doubt, an engine refuses."""
    from vllm.exceptions import VLLMValidationError

    refusals = (ValueError, TypeError, VLLMValidationError, AttributeError)  # the last is a 500: `structured_outputs`
    name = data.draw(st.sampled_from(sorted(CHECKS[endpoint == CHAT])))
    request = request_of(endpoint, **{name: value})
    try:
        check_fields(request)
    except BadRequest:
        with pytest.raises(refusals):
            vllm_request(endpoint, decode_body(request, None, None))


@pytest.mark.parametrize("part", DOWNLOADED + BESIDE_NULLS, ids=json.dumps)
def test_a_part_means_the_same_with_a_name_as_without(part: dict[str, Any]) -> None:
    from vllm.renderers.chat_utils import _parse_chat_message_content_mm_part as read

    kind, url = read(part)
    same = {"input_image": "image_url"}  # vLLM treats the two alike from there on
    (named,) = asked(part)
    assert read(named) == (same.get(kind, kind), url)
