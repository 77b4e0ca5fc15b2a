"""Prefill's `cached_tokens` in decode's usage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.wire import EventStream, says_nothing, unary_answer
from gateway.wire.usage import with_cached_tokens


@pytest.mark.parametrize(
    ("details", "cached", "expected"),
    [
        ({"cached_tokens": 7}, 3, {"cached_tokens": 3}),
        ({"cached_tokens": 7, "audio_tokens": 1}, 0, {"cached_tokens": 0, "audio_tokens": 1}),
        (None, 3, {"cached_tokens": 3}),
        ({"cached_tokens": 3}, 3, None),
        ({"cached_tokens": 7}, None, None),
    ],
)
def test_prefills_figure_stands(details: Any, cached: int | None, expected: Any) -> None:
    usage = {"prompt_tokens": 9, "prompt_tokens_details": details}
    mended = with_cached_tokens(usage, cached)
    assert mended == (None if expected is None else {"prompt_tokens": 9, "prompt_tokens_details": expected})


def test_a_whole_answer_and_a_stream_have_it_and_keep_the_rest_as_it_came() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    body = b'{"x":1.50,"choices":[{"finish_reason":"stop"}],"usage":' + json.dumps(usage).encode() + b"}"
    answer = unary_answer("e", body, 2)
    assert answer.usage is not None
    assert answer.usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert json.loads(answer.body)["usage"] == answer.usage
    assert b'"x":1.50' in answer.body
    assert unary_answer("e", body, 8).body is body
    stream = EventStream("e")
    stream.cached_tokens = 2
    out = stream.feed(b'data: {"x":1.50,"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\n")
    assert json.loads(out.removeprefix(b"data: "))["usage"] == answer.usage == stream.usage
    assert b'"x":1.50' in out


def chunk(delta: Any, finish: Any = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


@pytest.mark.parametrize(
    ("events", "nothing"),
    [
        (chunk({"role": "assistant", "content": ""}), True),
        (b": comment\n\n" + chunk({"role": "assistant"}), True),
        (chunk({"role": "assistant", "content": "a"}), False),
        (chunk({"role": "assistant", "content": ""}) + chunk({"content": "a"}), False),
        (chunk({"tool_calls": [{"index": 0}]}), False),
        (chunk({}, "stop"), False),
        (b'data: {"choices":[{"index":0,"text":""}]}\n\n', False),
        (b"data: [DONE]\n\n", False),
        (b"event: ping\ndata: {}\n\n", True),
        (b'data: {"choices":[],"usage":{}}\n\n', True),
    ],
)
def test_what_only_names_a_role_says_nothing(events: bytes, nothing: bool) -> None:
    assert says_nothing(events) is nothing


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([chunk({"content": "a"}), chunk({"content": "b"}, "stop")], True),
        ([chunk({"content": "b"}, "stop"), b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'], True),
        ([chunk({"content": "a"}), chunk({"content": "b"})], False),
        ([chunk({"content": "b"}, "stop"), b'data: {"cho'], False),
        ([], False),
    ],
)
def test_an_answer_with_its_end_is_whole_without_done(events: list[bytes], complete: bool) -> None:
    stream = EventStream("e")
    for event in events:
        stream.feed(event)
    assert stream.complete is complete
