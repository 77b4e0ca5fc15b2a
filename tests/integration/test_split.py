"""What a split request is: two calls, one answer, one record."""

from __future__ import annotations

import json

import httpx
import pytest

from gateway.lifecycle import Event
from tests.integration.conftest import MODEL, Pair
from tests.sse import events_of

SHAPES = {"chat": {"messages": [{"role": "user", "content": "some words"}]}, "complete": {"prompt": "some words"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["chat", "complete"])
async def test_prefill_is_one_call_and_decode_is_one(pair: Pair, kind: str, stream: bool) -> None:
    reply = await getattr(pair, kind)(stream=stream, max_tokens=5)
    assert reply.status_code == 200
    (prefill,), (decode,) = pair.prefill.calls, pair.decode.calls
    assert prefill.path == decode.path
    assert (prefill.body["max_tokens"], prefill.body["stream"]) == (1, False)
    assert prefill.body["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    assert (decode.body["max_tokens"], decode.body["stream"]) == (5, stream)
    assert decode.body["kv_transfer_params"]["remote_engine_id"] == pair.prefill.id
    assert prefill.headers["x-request-id"] != decode.headers["x-request-id"]


@pytest.mark.parametrize("kind", ["chat", "complete"])
async def test_the_answer_is_the_unsplit_engines(pair: Pair, kind: str) -> None:
    split = (await getattr(pair, kind)("some words", max_tokens=7)).json()
    async with httpx.AsyncClient(base_url=pair.prefill_url) as client:
        body = {"model": MODEL, "max_tokens": 7, **SHAPES[kind]}
        whole = (await client.post(pair.prefill.calls[0].path, json=body)).json()
    assert split["choices"] == whole["choices"]
    assert split["usage"] == whole["usage"]


async def test_nothing_was_prefilled_twice(pair: Pair) -> None:
    usage = (await pair.chat()).json()["usage"]
    assert pair.decode.sources == {"external_kv_transfer": usage["prompt_tokens"]}
    assert pair.prefill.kv.fetched == 1
    assert not pair.prefill.kv.held


async def test_decode_sees_the_tokens_that_were_prefilled(pair: Pair) -> None:
    await pair.chat("tokens")
    sent = pair.decode.calls[0].body["kv_transfer_params"]["prompt_token_ids"]
    assert len(sent) == sum(pair.prefill.sources.values())
    assert pair.prefill.calls[0].body["return_token_ids"] is True
    assert "return_token_ids" not in pair.decode.calls[0].body


async def test_a_stream_comes_through_event_by_event(pair: Pair) -> None:
    reply = await pair.chat(stream=True, max_tokens=3, stream_options={"include_usage": True})
    events = events_of(reply.text)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]] == [None, None, None, "length"]
    assert events[-1]["usage"]["completion_tokens"] == 3
    assert reply.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_what_engines_say_to_each_other_is_neither_taken_nor_given(pair: Pair, stream: bool) -> None:
    reply = await pair.chat(
        stream=stream,
        kv_transfer_params={"do_remote_prefill": True},
        ec_transfer_params={"a": 1},
        vllm_xargs={"kv_transfer_params": "x", "mine": 1},
    )
    assert reply.status_code == 200
    assert "transfer_params" not in reply.text
    assert "remote_" not in reply.text
    for call in (*pair.prefill.calls, *pair.decode.calls):
        assert call.body["vllm_xargs"] == {"mine": 1}
        assert "ec_transfer_params" not in call.body


async def test_the_record_tells_the_whole_life(pair: Pair) -> None:
    reply = await pair.chat(stream=True)
    record = await pair.record_in("finished", reply.headers["x-duet-request-id"])
    assert [e["event"] for e in record["events"]] == [
        "admitted",
        Event.PREFILL_SENT,
        Event.PREFILL_DONE,
        Event.DECODE_SENT,
        Event.COMPLETED,
    ]
    assert {"accepted", "prefilling", "prefilled", "decoding", "total", "time_to_first_byte"} == set(record["phases"])
    assert record["handoff"]["params"]["remote_engine_id"] == pair.prefill.id
    assert set(record["handoff"]["params"]["remote_block_ids"]) == {"lists", "entries"}
    assert "token_ids" not in json.dumps(record)
    answer_id = events_of(reply.text)[0]["id"]
    assert (await pair.record_of(answer_id))["id"] == record["id"], "an answer's id finds its record"


async def test_unknown_requests_are_not_found(pair: Pair) -> None:
    reply = await pair.client.get("/admin/requests/nobody")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "request_not_found"


async def test_requests_can_be_listed_by_state(pair: Pair) -> None:
    good = (await pair.chat()).headers["x-duet-request-id"]
    pair.decode.rule("status", status=500)
    bad = (await pair.chat()).headers["x-duet-request-id"]
    await pair.record_in("failed", bad)
    await pair.record_in("finished", good)
    listed = [r["id"] for r in (await pair.client.get("/admin/requests")).json()["requests"]]
    assert listed == [bad, good], "newest first"
    failed = (await pair.client.get("/admin/requests?state=failed")).json()["requests"]
    assert [r["id"] for r in failed] == [bad]
    assert failed[0]["error"]["status"] == 500


async def test_the_topology_shows_engines_and_connector(pair: Pair) -> None:
    topology = (await pair.client.get("/admin/topology")).json()
    assert {e["role"]: e["up"] for e in topology["engines"]} == {"prefill": True, "decode": True}
    assert topology["connector"]["name"] == pair.settings.connector
    assert topology["routable"] == {"prefill": True, "decode": True}
    assert topology["models"] == {MODEL: {"max_model_len": 4096}}
