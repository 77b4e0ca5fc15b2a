"""Whole answers and streams: what the relay reads, rewrites and passes on."""

from __future__ import annotations

import json

import pytest

from tests.contract.engine import shapes
from tests.contract.engine.conftest import CHAT, TEXT, Engines, asked, until

both = pytest.mark.parametrize("path", [CHAT, TEXT], ids=["chat", "text"])


async def test_health_and_models(engines: Engines) -> None:
    health = await engines.unsplit.client.get("/health")
    assert (health.status_code, health.content) == (200, b"")
    models = (await engines.unsplit.client.get("/v1/models")).json()
    assert models["object"] == "list"
    (card,) = models["data"]
    assert list(card) == shapes.MODEL_CARD
    assert (card["id"], card["object"], card["max_model_len"]) == (engines.model, "model", engines.max_model_len)


@both
async def test_a_whole_answer(engines: Engines, path: str, fresh: str) -> None:
    reply = await engines.unsplit.whole(path, {**asked(path, fresh), "max_tokens": 3, "ignore_eos": True})
    chat = path == CHAT
    assert list(reply) == (shapes.WHOLE_CHAT if chat else shapes.WHOLE_TEXT)
    assert reply["object"] == ("chat.completion" if chat else "text_completion")
    assert reply["model"] == engines.model
    assert reply["kv_transfer_params"] is None
    (choice,) = reply["choices"]
    assert list(choice) == (shapes.CHOICE_CHAT if chat else shapes.CHOICE_TEXT)
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "length", None)
    assert choice["token_ids"] is None
    if chat:
        assert list(choice["message"]) == shapes.MESSAGE
        assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"] if chat else choice["text"], str)
    usage = reply["usage"]
    assert list(usage) == shapes.USAGE
    assert list(usage["prompt_tokens_details"]) == shapes.DETAILS
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3


@both
async def test_the_id_is_the_callers(engines: Engines, path: str) -> None:
    prefix = "chatcmpl" if path == CHAT else "cmpl"
    body = {**asked(path, "x"), "max_tokens": 1}
    assert (await engines.unsplit.whole(path, body, request_id="abc-1-decode"))["id"] == f"{prefix}-abc-1-decode"
    streamed = await engines.unsplit.stream(path, body, request_id="abc-2-decode")
    assert {event["id"] for event in streamed.events} == {f"{prefix}-abc-2-decode"}
    ids = {(await engines.unsplit.whole(path, body))["id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(found.startswith(f"{prefix}-") for found in ids)


@both
async def test_a_stream(engines: Engines, path: str, fresh: str) -> None:
    streamed = await engines.unsplit.stream(path, {**asked(path, fresh), "max_tokens": 3, "ignore_eos": True})
    chat = path == CHAT
    assert streamed.done
    assert streamed.reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert {event["object"] for event in streamed.events} == {"chat.completion.chunk" if chat else "text_completion"}
    events = streamed.events
    if chat:
        role = events.pop(0)
        assert list(role) == shapes.FIRST_CHUNK_CHAT
        assert list(role["choices"][0]) == shapes.ROLE_CHOICE
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert 1 <= len(events) <= 3, "a busy engine puts several tokens into one event"
    for event in events:
        last = event is events[-1]
        assert list(event) == (shapes.LAST_CHUNK if last else shapes.CHUNK)
        (choice,) = event["choices"]
        if chat:
            assert list(choice) == (shapes.LAST_DELTA_CHAT if last else shapes.DELTA_CHAT)
            assert list(choice["delta"]) == ["content"]
        else:
            assert list(choice) == shapes.DELTA_TEXT
        assert choice["finish_reason"] == ("length" if last else None)


@both
@pytest.mark.parametrize("continuous", [False, True])
async def test_usage_in_a_stream(engines: Engines, path: str, continuous: bool, fresh: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    body = {**asked(path, fresh), "max_tokens": 3, "ignore_eos": True, "stream_options": options}
    *events, last = (await engines.unsplit.stream(path, body)).events
    assert list(last) == shapes.USAGE_CHUNK
    assert last["choices"] == []
    assert list(last["usage"]) == shapes.USAGE_IN_CHUNK
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    prompt = last["usage"]["prompt_tokens"]
    assert (last["usage"]["completion_tokens"], last["usage"]["total_tokens"]) == (3, prompt + 3)
    assert all(("usage" in event) == continuous for event in events)
    if continuous:
        counts = [event["usage"]["completion_tokens"] for event in events]
        assert counts == sorted(set(counts)), "each event adds a token or several"
        assert (counts[0] == 0, counts[-1]) == (path == CHAT, 3)
        assert {event["usage"]["prompt_tokens"] for event in events} == {prompt}
    assert all("system_fingerprint" not in event for event in events)


@both
async def test_token_ids_come_when_asked_for(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "max_tokens": 4, "ignore_eos": True, "return_token_ids": True}
    whole = await engines.unsplit.whole(path, body)
    (choice,) = whole["choices"]
    prompt = whole["prompt_token_ids"] if path == CHAT else choice["prompt_token_ids"]
    assert len(prompt) == whole["usage"]["prompt_tokens"]
    assert all(isinstance(token, int) for token in prompt)
    assert len(choice["token_ids"]) == 4
    events = (await engines.unsplit.stream(path, body)).events
    first = events[0] if path == CHAT else events[0]["choices"][0]
    assert first["prompt_token_ids"] == prompt
    later = events[1:] if path == CHAT else [event["choices"][0] for event in events[1:]]
    assert all(one.get("prompt_token_ids") is None for one in later)
    streamed = [t for event in events for c in event["choices"] for t in c.get("token_ids") or ()]
    assert streamed == choice["token_ids"], "the same tokens, streamed or not"


@both
async def test_the_text_is_the_same_streamed_or_not(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "max_tokens": 12}
    whole = (await engines.unsplit.whole(path, body))["choices"][0]
    events = (await engines.unsplit.stream(path, body)).events
    choices = [choice for event in events for choice in event["choices"]]
    if path == CHAT:
        assert "".join(c["delta"].get("content") or "" for c in choices) == whole["message"]["content"]
    else:
        assert "".join(c["text"] for c in choices) == whole["text"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"]


async def test_a_stop_string_ends_an_answer(engines: Engines, fresh: str) -> None:
    whole = (await engines.unsplit.whole(TEXT, {"prompt": fresh, "max_tokens": 40, "ignore_eos": True}))["choices"][0]
    stop = whole["text"][9:11]
    body = {"prompt": fresh, "max_tokens": 40, "ignore_eos": True, "stop": [stop]}
    stopped = (await engines.unsplit.whole(TEXT, body))["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)
    assert whole["text"].startswith(stopped["text"] + stop)
    events = (await engines.unsplit.stream(TEXT, body)).events
    assert "".join(event["choices"][0]["text"] for event in events) == stopped["text"]
    assert events[-1]["choices"][0]["stop_reason"] == stop


async def test_a_stop_token_ends_an_answer(engines: Engines, fresh: str) -> None:
    body = {"prompt": fresh, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}
    tokens = (await engines.unsplit.whole(TEXT, body))["choices"][0]["token_ids"]
    stop = tokens[3]
    stopped = (await engines.unsplit.whole(TEXT, {**body, "stop_token_ids": [stop]}))["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)
    assert stopped["token_ids"] == tokens[: tokens.index(stop) + 1]


@both
async def test_several_choices(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "n": 2, "temperature": 1, "seed": 1, "max_tokens": 2, "ignore_eos": True}
    whole = await engines.unsplit.whole(path, body)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["usage"]["completion_tokens"] == 4
    events = (await engines.unsplit.stream(path, body)).events
    ends = [c["index"] for event in events for c in event["choices"] if c["finish_reason"] == "length"]
    assert sorted(ends) == [0, 1]


async def test_several_prompts(engines: Engines, fresh: str) -> None:
    whole = await engines.unsplit.whole(TEXT, {"prompt": [fresh, "x"], "max_tokens": 1})
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]


async def test_echo_puts_the_prompt_first(engines: Engines, fresh: str) -> None:
    body = {"prompt": fresh, "max_tokens": 2, "echo": True}
    assert (await engines.unsplit.whole(TEXT, body))["choices"][0]["text"].startswith(fresh)
    events = (await engines.unsplit.stream(TEXT, body)).events
    assert events[0]["choices"][0]["text"].startswith(fresh)


@both
async def test_max_tokens_beyond_the_room_are_cut_to_it(engines: Engines, path: str) -> None:
    """Only more than the whole context is refused."""
    room = 5
    prompt = [7] * (engines.max_model_len - room)
    body = (
        {"kv_transfer_params": {"prompt_token_ids": prompt}, **asked(path, "x")} if path == CHAT else {"prompt": prompt}
    )
    reply = await engines.unsplit.whole(path, {**body, "max_tokens": 100, "ignore_eos": True})
    assert reply["usage"]["completion_tokens"] == room


async def test_a_client_that_leaves_ends_the_work(engines: Engines, fresh: str) -> None:
    body = {"model": engines.model, "prompt": fresh, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    async with engines.unsplit.client.stream("POST", TEXT, json=body) as reply:
        async for line in reply.aiter_lines():
            if line:
                json.loads(line.removeprefix("data: "))
                break

    async def idle() -> bool:
        return await engines.unsplit.metric("vllm:num_requests_running") == 0

    made = await engines.unsplit.metric("vllm:generation_tokens_total")
    await until(idle, "the engine is idle")
    assert await engines.unsplit.metric("vllm:generation_tokens_total") < made + 1400
