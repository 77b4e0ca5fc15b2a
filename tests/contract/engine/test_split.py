"""Prefill here, decode there: NIXL pull's handoff as both sides keep it."""

from __future__ import annotations

import random

import pytest

from tests.contract.engine import shapes
from tests.contract.engine.conftest import (
    CHAT,
    ONE_TOKEN,
    PRODUCE,
    TEXT,
    Engines,
    Json,
    asked,
    until,
)

both = pytest.mark.parametrize("path", [CHAT, TEXT], ids=["chat", "text"])


def prompt_ids(reply: Json) -> list[int]:
    """From a whole reply with `return_token_ids`: a chat's stand beside the choices, a completion's in them."""
    found: list[int] = (
        reply["prompt_token_ids"] if "prompt_token_ids" in reply else reply["choices"][0]["prompt_token_ids"]
    )
    return found


@both
async def test_prefill_returns_a_handoff(engines: Engines, path: str, fresh: str) -> None:
    reply, handoff = await engines.hand_over(path, asked(path, fresh), request_id="r-1-prefill")
    assert list(handoff) == list(shapes.HANDOFF)
    wrong = {k: v for k, v in handoff.items() if type(v) is not shapes.HANDOFF[k]}
    assert not wrong
    assert (handoff["do_remote_prefill"], handoff["do_remote_decode"]) == (True, False)
    assert handoff["remote_num_tokens"] == reply["usage"]["prompt_tokens"] == len(prompt_ids(reply))
    (blocks,) = handoff["remote_block_ids"]
    assert blocks
    assert all(isinstance(block, int) for block in blocks)
    assert "r-1-prefill" in handoff["remote_request_id"]
    assert handoff["transfer_mode"] == "pull"
    (choice,) = reply["choices"]
    assert (choice["finish_reason"], reply["usage"]["completion_tokens"]) == ("length", 1)
    await engines.decode.whole(path, {**asked(path, fresh), "max_tokens": 1, "kv_transfer_params": handoff})


@both
async def test_decode_goes_on_where_prefill_ended(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}
    whole = (await engines.unsplit.whole(path, body))["choices"][0]["token_ids"]
    reply, handoff = await engines.hand_over(path, body)
    before = await engines.decode.sources()
    events = (await engines.decode.stream(path, {**body, "kv_transfer_params": handoff})).events
    tokens = [t for event in events for c in event["choices"] for t in c.get("token_ids") or ()]
    assert tokens == whole
    assert reply["choices"][0]["token_ids"] == whole[:1], "prefill's one token is decode's first"
    after = await engines.decode.sources()
    assert after["external_kv_transfer"] - before["external_kv_transfer"] == reply["usage"]["prompt_tokens"]
    assert after["local_compute"] == before["local_compute"], "nothing was prefilled twice"


@both
async def test_no_transfer_parameters_come_back_from_decode(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "max_tokens": 2}
    for stream in (False, True):
        _, handoff = await engines.hand_over(path, body)
        ask = {**body, "kv_transfer_params": handoff}
        if stream:
            assert all("kv_transfer_params" not in event for event in (await engines.decode.stream(path, ask)).events)
        else:
            assert (await engines.decode.whole(path, ask))["kv_transfer_params"] is None


@both
async def test_a_streamed_prefill_hands_nothing_over(engines: Engines, path: str) -> None:
    body = {**asked(path, "x"), **ONE_TOKEN, "kv_transfer_params": PRODUCE}
    events = (await engines.prefill.stream(path, body)).events
    assert all("kv_transfer_params" not in event for event in events)


@both
async def test_what_prefill_had_cached_is_what_decode_reports(engines: Engines, path: str, fresh: str) -> None:
    body = {**asked(path, fresh), "max_tokens": 1}
    _, handoff = await engines.hand_over(path, body)
    ask = {**body, "kv_transfer_params": {**handoff, "remote_prefill_cached_tokens": 7}}
    assert (await engines.decode.whole(path, ask))["usage"]["prompt_tokens_details"]["cached_tokens"] == 7


async def test_the_ids_win_over_the_messages_of_a_chat(engines: Engines, fresh: str) -> None:
    body = {**asked(CHAT, fresh), "max_tokens": 5, "ignore_eos": True, "return_token_ids": True}
    whole = (await engines.unsplit.whole(CHAT, body))["choices"][0]["token_ids"]
    reply, handoff = await engines.hand_over(CHAT, body)
    other = {**body, **asked(CHAT, "quite another text")}
    kv = {**handoff, "prompt_token_ids": prompt_ids(reply)}
    decoded = await engines.decode.whole(CHAT, {**other, "kv_transfer_params": kv})
    assert prompt_ids(decoded) == prompt_ids(reply)
    assert decoded["choices"][0]["token_ids"] == whole


async def test_completions_do_not_look_for_ids(engines: Engines, fresh: str) -> None:
    """So a gateway must send decode the very prompt that was prefilled."""
    body = {"prompt": fresh, "max_tokens": 1, "return_token_ids": True}
    told = await engines.unsplit.whole(TEXT, {**body, "kv_transfer_params": {"prompt_token_ids": [7, 8, 9]}})
    assert prompt_ids(told) == prompt_ids(await engines.unsplit.whole(TEXT, body)) != [7, 8, 9]


async def test_a_prompt_of_ids_is_the_prompt(engines: Engines, fresh: str) -> None:
    body = {"prompt": fresh, "max_tokens": 4, "return_token_ids": True}
    text = await engines.unsplit.whole(TEXT, body)
    ids = await engines.unsplit.whole(TEXT, {**body, "prompt": prompt_ids(text)})
    assert prompt_ids(ids) == prompt_ids(text)
    assert ids["choices"][0]["token_ids"] == text["choices"][0]["token_ids"]


@pytest.mark.parametrize("ids", [[], "x", ["a"], [1.5], [-1], [True], [10**8]], ids=repr)
async def test_ids_that_are_none_are_refused(engines: Engines, ids: object) -> None:
    body = {**asked(CHAT, "x"), "max_tokens": 1, "kv_transfer_params": {"prompt_token_ids": ids}}
    reply = await engines.unsplit.post(CHAT, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "kv_transfer_params.prompt_token_ids"


@pytest.mark.parametrize("length", [1, 2, 32, 33, 64, 2047])
async def test_prompts_of_any_length_are_handed_over(engines: Engines, length: int) -> None:
    """Two tokens, whole blocks, one more, and all that a model takes. Of one token nothing is left to hand over: the
    last token of a prompt is computed again in any case."""
    body = {"prompt": [random.randrange(300, 500) for _ in range(length)], "max_tokens": 1}
    _, handoff = await engines.hand_over(TEXT, body)
    before = await engines.decode.sources()
    await engines.decode.whole(TEXT, {**body, "kv_transfer_params": handoff})
    grew = {source: count - before[source] for source, count in (await engines.decode.sources()).items()}
    external = 0 if length == 1 else length - grew["local_cache_hit"]
    assert grew["external_kv_transfer"] == external > -1
    assert grew["local_compute"] == (1 if length == 1 else 0)


async def test_a_decode_that_is_refused_lets_prefill_free_its_blocks(engines: Engines) -> None:
    """How a handoff that nobody wants is given back: the request is refused, and nothing is moved."""
    usage = "vllm:kv_cache_usage_perc"
    tiny = {"prompt": "x", "max_tokens": 1}
    body = {"prompt": [7] * 1900, "max_tokens": 1}
    _, handoff = await engines.hand_over(TEXT, body)
    held = await engines.prefill.metric(usage)
    before = await engines.decode.sources()
    reply = await engines.decode.post(TEXT, {**body, "n": 0, "kv_transfer_params": handoff})
    assert reply.status_code == 400

    async def freed() -> bool:
        await engines.prefill.whole(TEXT, tiny)  # a step, after which the gauge is set anew
        return await engines.prefill.metric(usage) < held - 0.05

    await until(freed, "prefill's blocks are free")
    assert await engines.decode.sources() == before, "nothing was moved"


@both
async def test_kv_that_cannot_be_loaded_is_an_error_event_under_200(engines: Engines, path: str, fresh: str) -> None:
    """The status has left before. A chat has had its role chunk too."""
    body = {**asked(path, fresh), "max_tokens": 4}
    _, handoff = await engines.hand_over(path, body)
    nobody = {**handoff, "remote_engine_id": fresh[:32], "remote_port": 1}
    streamed = await engines.decode.stream(path, {**body, "kv_transfer_params": nobody})
    assert streamed.done
    *before, last = streamed.events
    assert len(before) == (1 if path == CHAT else 0)
    assert list(last) == ["error"]
    assert list(last["error"]) == shapes.ERROR
    assert last["error"]["code"] == 500
    await engines.decode.whole(path, {**body, "kv_transfer_params": handoff})  # so that prefill frees it


async def test_kv_that_cannot_be_loaded_is_a_500_for_a_whole_answer(engines: Engines, fresh: str) -> None:
    body = {"prompt": fresh, "max_tokens": 4}
    _, handoff = await engines.hand_over(TEXT, body)
    nobody = {**handoff, "remote_engine_id": fresh[:32], "remote_port": 1}
    reply = await engines.decode.post(TEXT, {**body, "kv_transfer_params": nobody})
    assert reply.status_code == 500
    assert list(reply.json()["error"]) == shapes.ERROR
    await engines.decode.whole(TEXT, {**body, "kv_transfer_params": handoff})
