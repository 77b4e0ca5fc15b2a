"""An error that an engine gives under status 200 is one, wherever it stands: its `code` says whose fault it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import EngineError
from gateway.routing.breaker import BreakerState
from tests.fakes.script import Script, json_reply, sse_reply
from tests.unit.gateway.coordinating import DECODE, PREFILL, KeptSink, Rig, answered, prefilled, streamed

PREFILL_2 = Engine.at("http://127.0.0.1:8101", Role.PREFILL)
DECODE_2 = Engine.at("http://127.0.0.1:8201", Role.DECODE)
ROLE = {"id": "d", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}

Made = Callable[[dict[str, Any]], Script]


def old(error: dict[str, Any]) -> dict[str, Any]:
    return {"object": "error", **error}


def named(error: dict[str, Any]) -> Script:
    return sse_reply(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n", done=False)


WAYS: dict[str, tuple[str, bool, Made]] = {
    "prefill": ("prefill", False, lambda error: json_reply({"error": error})),
    "prefill, old": ("prefill", True, lambda error: json_reply(old(error))),
    "decode, whole": ("decode", False, lambda error: json_reply({"error": error})),
    "decode, whole, old": ("decode", False, lambda error: json_reply(old(error))),
    "decode, no stream": ("decode", True, lambda error: json_reply({"error": error})),
    "decode, no stream, old": ("decode", True, lambda error: json_reply(old(error))),
    "decode, an event": ("decode", True, lambda error: sse_reply(ROLE, {"error": error})),
    "decode, an old event": ("decode", True, lambda error: sse_reply(ROLE, old(error))),
    "decode, a named event": ("decode", True, named),
}
"""Which leg says it, whether the client wants a stream, and how it is said."""

each = pytest.mark.parametrize("way", WAYS)


def rig_of(way: str, code: int, *, always: bool = False) -> Rig:
    leg, _, made = WAYS[way]
    rig = Rig(engines=(PREFILL, PREFILL_2, DECODE, DECODE_2))
    rig.fleet.members[PREFILL_2.id].local = rig.fleet.members[DECODE_2.id].local = 1  # the others are asked first
    said = made({"message": "told", "type": "T", "param": None, "code": code})
    rig.client.on(leg="release", reply=json_reply({"error": {"message": "no", "code": 400}}, 400))
    rig.client.on(leg=leg, reply=said, **({} if always else {"times": 1}))
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("hi") if WAYS[way][1] else answered("hi"))
    return rig


async def failed(rig: Rig, way: str, request_id: str = "r1") -> EngineError:
    """What the request ended with; nothing had gone to the client."""
    sink = KeptSink()
    with pytest.raises(EngineError) as caught:
        await rig.ask(request_id, sink, stream=WAYS[way][1])
    await rig.coordinator.drain()
    assert not sink.started
    return caught.value


@each
@pytest.mark.parametrize("code", [400, 404, 422, 429])
async def test_the_clients_fault_is_told_and_nobody_else_is_asked_or_blamed(way: str, code: int) -> None:
    rig = rig_of(way, code)
    error = await failed(rig, way)
    assert (error.status, error.message) == (code, "told")
    assert len(rig.client.posts_of("prefill")) == 1
    assert len(rig.client.posts_of("decode")) == (WAYS[way][0] == "decode")


@each
@pytest.mark.parametrize("code", [401, 403, 500, 503])
async def test_an_engines_own_fault_is_left_to_another(way: str, code: int) -> None:
    rig = rig_of(way, code)
    sink = await rig.ask(stream=WAYS[way][1])
    assert (sink.status, b'"hi"' in sink.body) == (200, True)
    assert len(rig.client.posts_of("prefill")) == 2


@each
@pytest.mark.parametrize(("code", "status"), [(401, 502), (403, 502), (500, 500), (503, 503)])
async def test_where_every_engine_says_so_it_is_told(way: str, code: int, status: int) -> None:
    error = await failed(rig_of(way, code, always=True), way)
    assert error.status == status
    assert "told" in error.message


@each
async def test_an_engine_that_names_the_clients_fault_works(way: str) -> None:
    rig = rig_of(way, 400, always=True)
    member = rig.fleet.members[PREFILL.id if WAYS[way][0] == "prefill" else DECODE.id]
    for _ in range(3):
        rig.fleet.failed(member.engine.id, "a fault")
    assert not member.breaker.lets_through(rig.clock.monotonic())
    rig.clock.advance(3)
    rig.fleet.members[PREFILL_2.id].up = rig.fleet.members[DECODE_2.id].up = False
    assert (await failed(rig, way)).status == 400
    assert member.breaker.state(rig.clock.monotonic()) is BreakerState.CLOSED
