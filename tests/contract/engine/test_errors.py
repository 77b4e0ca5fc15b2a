"""What engines refuse, and how they say it. Every message here was first seen on a real engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.engine import shapes
from tests.contract.engine.conftest import CHAT, TEXT, Engines, asked

BAD_REQUEST, INVALID = "BadRequestError", "Bad Request"


def error_of(reply: Any, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == shapes.ERROR
    assert body["error"]["code"] == status
    found: dict[str, Any] = body["error"]
    return found


@dataclass(frozen=True)
class Case:
    """A body that is refused, and how."""

    path: str
    body: dict[str, Any]
    status: int
    type: str
    param: str | None
    message: str


CASES = {
    "model": Case(TEXT, {"model": "nope"}, 404, "NotFoundError", "model", "The model `nope` does not exist."),
    "no prompt": Case(TEXT, {"prompt": None}, 400, BAD_REQUEST, "prompt", "Either prompt or prompt_embeds must be"),
    "empty prompt": Case(TEXT, {"prompt": ""}, 400, BAD_REQUEST, "prompt", "Either prompt or prompt_embeds must be"),
    "no messages": Case(CHAT, {"messages": []}, 400, BAD_REQUEST, None, "Cannot apply chat template"),
    "messages": Case(CHAT, {"messages": "x"}, 400, INVALID, "body.messages", "1 validation error:"),
    "max_tokens type": Case(TEXT, {"max_tokens": "x"}, 400, INVALID, "body.max_tokens", "1 validation error:"),
    "max_tokens 0": Case(
        TEXT, {"max_tokens": 0}, 400, BAD_REQUEST, "max_tokens", "max_tokens must be at least 1, got 0."
    ),
    "budget": Case(
        TEXT, {"max_tokens": 9999}, 400, BAD_REQUEST, "max_tokens", "max_tokens=9999 cannot be greater than"
    ),
    "chat budget": Case(
        CHAT, {"max_tokens": 9999}, 400, BAD_REQUEST, "max_tokens", "max_tokens=9999 cannot be greater"
    ),
    "min_tokens": Case(
        TEXT, {"max_tokens": 2, "min_tokens": 5}, 400, BAD_REQUEST, None, "min_tokens must be less than"
    ),
    "n": Case(CHAT, {"n": 0}, 400, BAD_REQUEST, None, "n must be at least 1, got 0."),
    "n beyond all": Case(CHAT, {"n": 10**9}, 400, BAD_REQUEST, None, "n must be at most 16384, got 1000000000. To"),
    "seed": Case(TEXT, {"seed": 2**64}, 400, INVALID, "body.seed", "1 validation error:"),
    "no prompts": Case(TEXT, {"prompt": []}, 400, BAD_REQUEST, None, "You must pass at least one prompt"),
    "greedy n": Case(TEXT, {"n": 2}, 400, BAD_REQUEST, None, "n must be 1 when using greedy sampling, got 2."),
    "temperature": Case(CHAT, {"temperature": -1}, 400, BAD_REQUEST, "temperature", "temperature must be non-negative"),
    "too long": Case(
        TEXT, {"prompt": "word " * 3000}, 400, BAD_REQUEST, "input_tokens", "This model's maximum context"
    ),
    "no room": Case(
        TEXT, {"prompt": [7] * 2048}, 400, BAD_REQUEST, "max_tokens", "max_tokens must be at least 1, got 0."
    ),
    "ids too long": Case(
        TEXT,
        {"prompt": [7] * 3000},
        400,
        BAD_REQUEST,
        "input_tokens",
        "This model's maximum context length is 2048 tokens. However, your prompt contains 3000 input tokens, which",
    ),
    "chat ids too long": Case(
        CHAT,
        {"kv_transfer_params": {"prompt_token_ids": [7] * 3000}},
        400,
        BAD_REQUEST,
        None,
        "Input length (3000) exceeds model's maximum context length (2048).",
    ),
    "stream_options": Case(
        CHAT,
        {"stream_options": {"include_usage": True}},
        400,
        BAD_REQUEST,
        "stream_options",
        "Stream options can only be defined when `stream=True`.",
    ),
    "tools without a parser": Case(
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        400,
        BAD_REQUEST,
        None,
        '"auto" tool choice requires',
    ),
}


@pytest.mark.parametrize(
    ("case", "stream"),
    [
        pytest.param(case, stream, id=f"{name}{' in a stream' if stream else ''}")
        for name, case in CASES.items()
        for stream in (False, True)
        if not (stream and "stream_options" in case.body)
    ],
)
async def test_a_refusal_has_a_status_and_a_reason(engines: Engines, case: Case, stream: bool) -> None:
    """Streamed or not: it is refused before a stream begins."""
    reply = await engines.unsplit.post(case.path, {**asked(case.path, "x"), **case.body, "stream": stream})
    error = error_of(reply, case.status)
    assert (error["type"], error["param"]) == (case.type, case.param)
    assert error["message"].startswith(case.message)


EMPTY = "The decoder prompt cannot be empty"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([10**8], "Token id 100000000 is out of vocabulary"),
        ([[]], EMPTY),
        (["", ""], EMPTY),
        ([[1], []], EMPTY),
    ],
    ids=repr,
)
async def test_a_prompt_that_is_none_is_found_when_a_stream_has_begun(
    engines: Engines, prompt: Any, message: str
) -> None:
    body = {"prompt": prompt, "max_tokens": 1}
    whole = error_of(await engines.unsplit.post(TEXT, body), 400)
    (event,) = (await engines.unsplit.stream(TEXT, body)).events
    assert event["error"] == whole == {"message": message, "type": BAD_REQUEST, "param": None, "code": 400}


@pytest.mark.parametrize(
    ("raw", "param"),
    [(b'{"model":', "body.9"), (b"", "body"), (b"[1]", "body"), (b"{}", "body.messages")],
    ids=repr,
)
async def test_what_is_no_request_is_400(engines: Engines, raw: bytes, param: str) -> None:
    headers = {"content-type": "application/json"}
    error = error_of(await engines.unsplit.client.post(CHAT, content=raw, headers=headers), 400)
    assert (error["type"], error["param"]) == (INVALID, param)


async def test_what_is_no_text_has_another_shape(engines: Engines) -> None:
    headers = {"content-type": "application/json"}
    reply = await engines.unsplit.client.post(TEXT, content=b'{"prompt": "\xff"}', headers=headers)
    assert (reply.status_code, list(reply.json())) == (400, ["detail"])


async def test_unknown_paths_and_methods_have_another_shape(engines: Engines) -> None:
    for status, reply in (
        (404, await engines.unsplit.client.get("/v1/nothing")),
        (405, await engines.unsplit.client.get(TEXT)),
    ):
        assert (reply.status_code, list(reply.json())) == (status, ["detail"])


async def test_tools_that_are_not_to_be_used_are_still_in_the_prompt(engines: Engines) -> None:
    body = {**asked(CHAT, "x"), "max_tokens": 1}
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    without = await engines.unsplit.whole(CHAT, body)
    having = await engines.unsplit.whole(CHAT, {**body, "tools": tools, "tool_choice": "none"})
    assert having["usage"]["prompt_tokens"] > without["usage"]["prompt_tokens"]


async def test_a_model_need_not_be_named(engines: Engines) -> None:
    reply = await engines.unsplit.whole(TEXT, {"prompt": "x", "max_tokens": 1, "model": None})
    assert reply["model"] == engines.model
