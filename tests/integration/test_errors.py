"""What clients see when something is wrong: OpenAI's shape, the right status, and nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.awaiting import until
from tests.integration.conftest import Pair, World
from tests.sse import events_of


def error_of(body: Any) -> dict[str, Any]:
    """Asserts OpenAI's shape."""
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["code"] is None or (isinstance(error["code"], str) and not error["code"].isdigit())
    return error


async def test_an_unknown_model_is_404(pair: Pair) -> None:
    reply = await pair.chat(model="nope")
    assert reply.status_code == 404
    error = error_of(reply.json())
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert not pair.prefill.calls


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{nope", None),
        (b"", None),
        (b"[1]", None),
        (b'{"model": "\xff"}', None),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, None),
        (b'{"messages": []}', "model"),
        (b'{"model": 7, "messages": []}', "model"),
        (b'{"model": "sim"}', "messages"),
        (b'{"model": "sim", "messages": [], "stream": "yes"}', "stream"),
    ],
)
async def test_a_body_that_cannot_be_read_is_400(pair: Pair, body: bytes, param: str | None) -> None:
    reply = await pair.client.post("/v1/chat/completions", content=body)
    assert reply.status_code == 400
    assert error_of(reply.json())["param"] == param
    assert not pair.prefill.calls


async def test_an_over_long_prompt_is_400_in_the_engines_words(pair: Pair) -> None:
    reply = await pair.complete("x" * 5000)
    assert reply.status_code == 400
    error = error_of(reply.json())
    assert error["message"].startswith("This model's maximum context length is 4096 tokens.")
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert not pair.decode.calls


async def test_what_decode_refuses_is_400_too(pair: Pair) -> None:
    reply = await pair.complete("x", max_tokens=5000, stream=True)
    assert reply.status_code == 400
    assert error_of(reply.json())["param"] == "max_tokens"


async def test_no_routable_engine_is_503_with_retry_after(pair: Pair, world: World) -> None:
    lonely = await world.gateway(behind=(pair.decode, "http://127.0.0.1:9"))
    reply = await lonely.chat()
    assert reply.status_code == 503
    assert error_of(reply.json())["code"] == "no_routable_engine"
    assert int(reply.headers["retry-after"]) >= 1
    assert not pair.prefill.calls, "prefill must not run for a request that cannot be decoded"


@pytest.mark.parametrize(
    ("engine", "mode", "status", "code"),
    [
        ("prefill", "status", 500, "engine_error"),
        ("prefill", "drop", 503, "engine_unreachable"),
        ("prefill", "finish_error", 502, "engine_broken"),
        ("prefill", "null_handoff", 502, "handoff_invalid"),
        ("prefill", "partial_handoff", 502, "handoff_invalid"),
        ("decode", "status", 500, "engine_error"),
        ("decode", "drop", 503, "engine_unreachable"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte_has_a_status(
    pair: Pair, engine: str, mode: str, status: int, code: str, stream: bool
) -> None:
    getattr(pair, engine).rule(mode, times=9)
    reply = await pair.chat(stream=stream)
    assert reply.status_code == status
    getattr(pair, engine).faults.clear()
    assert error_of(reply.json())["code"] == code
    record = await pair.record_in("failed", reply.headers["x-duet-request-id"])
    assert record["error"]["code"] == code
    if engine == "prefill":
        assert not pair.decode.calls, "decode must not see a bad handoff"
    assert (await pair.chat(stream=stream)).status_code == 200, "the next request is not hurt"


@pytest.mark.parametrize("chat", [True, False])
async def test_an_error_event_as_the_first_event_has_a_status(pair: Pair, chat: bool) -> None:
    """vLLM answers 200 and then says that the KV could not be loaded. Chat has its role chunk before that, which says
    nothing and is held back."""
    pair.decode.rule("error_event", message="KV load failed")
    reply = await (pair.chat(stream=True) if chat else pair.complete(stream=True))
    assert reply.status_code == 500
    assert error_of(reply.json())["message"] == "KV load failed"


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("drop_midway", "engine_broken"),
        ("error_event", "engine_error"),
        ("finish_error", "engine_broken"),
    ],
)
async def test_a_failure_after_the_first_byte_is_an_event_and_an_end(pair: Pair, mode: str, code: str) -> None:
    pair.decode.rule(mode, after=2)
    reply = await pair.chat(stream=True, max_tokens=4)
    assert reply.status_code == 200
    *good, last = events_of(reply.text)
    assert error_of(last)["code"] == code
    assert len(good) >= 3, "what was good before it stays"
    assert reply.text.endswith("data: [DONE]\n\n")
    assert reply.text.count("data: [DONE]") == 1
    await pair.record_in("failed", reply.headers["x-duet-request-id"])


async def test_a_whole_stream_without_done_gets_one(pair: Pair) -> None:
    pair.decode.rule("no_done")
    reply = await pair.chat(stream=True, max_tokens=4)
    assert events_of(reply.text)[-1]["choices"][0]["finish_reason"] == "length"
    assert reply.text.count("data: [DONE]") == 1
    await pair.record_in("finished", reply.headers["x-duet-request-id"])


async def test_a_silent_engine_is_given_up(world: World) -> None:
    pair = await world.gateway(prefill_timeout=1.5, idle_timeout=1.5, unary_timeout=1.5)
    pair.prefill.rule("hang")
    reply = await pair.chat()
    assert reply.status_code == 504
    assert error_of(reply.json())["code"] == "engine_timeout"
    pair.decode.rule("hang")
    assert (await pair.chat()).status_code == 504
    pair.decode.rule("hang_midway", after=1)
    reply = await pair.chat(stream=True)
    assert error_of(events_of(reply.text)[-1])["code"] == "engine_timeout"

    async def all_left() -> bool:
        decoding = [c for c in pair.decode.calls if c.headers["x-request-id"].endswith("-decode")]
        return [c.end for c in (pair.prefill.calls[0], *decoding)] == ["client left"] * 3

    await until(all_left, "the engines see that nobody waits any more")


async def test_other_paths_and_methods_have_openais_shape_too(pair: Pair) -> None:
    reply = await pair.client.get("/v1/nothing")
    assert reply.status_code == 404
    error_of(reply.json())
    for method, path in (("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("DELETE", "/v1/completions")):
        reply = await pair.client.request(method, path)
        assert reply.status_code == 405, path
        assert error_of(reply.json())["code"] == "method_not_allowed"
    reply = await pair.client.get("/admin/requests?limit=0")
    assert reply.status_code == 400
    assert error_of(reply.json())["param"] == "limit"


async def test_a_body_too_long_is_413(world: World) -> None:
    pair = await world.gateway(max_body_bytes=1000)
    assert (await pair.complete("x" * 2000)).status_code == 413

    async def parts() -> Any:
        for _ in range(20):
            yield b" " * 100

    reply = await pair.client.post("/v1/completions", content=parts())  # chunked: no length is declared
    assert reply.status_code == 413
    assert error_of(reply.json())["code"] == "payload_too_large"
    assert not pair.prefill.calls


async def test_request_ids_are_echoed_and_never_used(pair: Pair) -> None:
    mine = {"x-request-id": "my-id"}
    body = {"model": "sim", "prompt": "x", "max_tokens": 1}
    replies = [await pair.client.post("/v1/completions", json=body, headers=mine) for _ in range(2)]
    assert [r.headers["x-request-id"] for r in replies] == ["my-id"] * 2
    seen = [c.headers["x-request-id"] for c in (*pair.prefill.calls, *pair.decode.calls)]
    assert len(set(seen)) == 4
    assert not [s for s in seen if "my-id" in s]
    assert (await pair.record(replies[0]))["client_request_id"] == "my-id"
    refused = await pair.client.post("/v1/completions", json={**body, "model": "no"}, headers=mine)
    assert refused.headers["x-request-id"] == "my-id"
    long = await pair.client.post("/v1/completions", json=body, headers={"x-request-id": "x" * 300})
    assert long.status_code == 400
    none = await pair.client.post("/v1/completions", json=body)
    assert none.headers["x-request-id"] == none.headers["x-duet-request-id"]


async def test_keys(world: World) -> None:
    pair = await world.gateway(api_key=("k1", "k2"), admin_key="boss")

    async def status(path: str, key: str | None) -> int:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        reply = await pair.client.get(path, headers=headers)
        if reply.status_code == 401:
            assert error_of(reply.json())["code"] == "invalid_api_key"
        return reply.status_code

    assert [await status("/v1/models", key) for key in (None, "no", "k1", "k2", "boss")] == [401, 401, 200, 200, 401]
    assert [await status("/admin/topology", key) for key in (None, "k1", "boss")] == [401, 403, 200]
    assert [await status(path, None) for path in ("/health", "/livez", "/readyz", "/metrics")] == [200] * 4
    assert [(await pair.client.head(path)).status_code for path in ("/health", "/livez", "/readyz")] == [200] * 3
    assert (await pair.chat()).status_code == 401
    body = {"model": "sim", "prompt": "x", "max_tokens": 1}
    reply = await pair.client.post("/v1/completions", json=body, headers={"authorization": "Bearer k2"})
    assert reply.status_code == 200
    assert "authorization" not in pair.prefill.calls[0].headers, "a client's key is not the engines' business"


async def test_engines_get_their_own_key(world: World) -> None:
    pair = await world.gateway(engine_api_key="ek")
    await pair.chat()
    keys = {c.headers["authorization"] for c in (*pair.prefill.calls, *pair.decode.calls)}
    assert keys == {"Bearer ek"}
    pair.prefill.rule("status", status=401)
    reply = await pair.chat()
    assert reply.status_code == 502, "an engine that refuses the gateway is not the client's fault"
