"""KV that an ended attempt leaves at prefill: counted until its lease is over, at whatever point the attempt ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from common.connectors import connector
from common.errors import DuetError, EngineBroken, EngineError, EngineTimeout, EngineUnreachable
from gateway.dispatch.handoffs import Abandoned
from gateway.dispatch.policy import Policies
from gateway.lifecycle import Event
from gateway.routing import Picker
from gateway.telemetry import Metrics
from tests.awaiting import until as eventually
from tests.fakes.script import CUT, Script, json_reply, sse_reply
from tests.unit.gateway.coordinating import (
    DECODE,
    LEASE,
    PREFILL,
    Rig,
    Together,
    answered,
    event,
    prefill_reply,
    prefilled,
    streamed,
    until,
)

REFUSED = json_reply({"error": {"message": "no", "code": 400}}, 400)
ROLE = {"id": "d", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
ONCE = Policies(attempts=1)


def rig_of(*, release: Script = REFUSED, **options: Any) -> Rig:
    rig = Rig(**{"policies": ONCE, **options})
    rig.client.on(leg="release", reply=release)
    return rig


async def failed(rig: Rig, **fields: Any) -> None:
    """Runs a request that has no good end; a stream may say so in its last event."""
    try:
        sink = await rig.ask(**fields)
    except DuetError:
        pass
    else:
        assert b'"error"' in sink.body
    await rig.coordinator.drain()


def held(rig: Rig) -> float:
    return rig.count("duet_handoffs_held")


async def prefill_is_done(rig: Rig) -> None:
    """Not only answered: it is known here."""

    async def known() -> bool:
        return any(row.event == Event.PREFILL_DONE for row in await rig.store.events("r1"))

    await eventually(known, "prefill is done")


def is_held_for_a_lease(rig: Rig) -> None:
    assert held(rig) == 1
    rig.clock.advance(LEASE - 1)
    assert held(rig) == 1, "the engine keeps it until the very end of its lease"
    rig.clock.advance(2)
    assert held(rig) == 0


@pytest.mark.parametrize("params", [None, {"do_remote_prefill": True}, {"remote_block_ids": [[1]]}], ids=repr)
async def test_kv_behind_a_handoff_that_is_refused_is_held(params: Any) -> None:
    rig = rig_of()
    rig.client.on(leg="prefill", reply=prefill_reply(params))
    await failed(rig)
    assert rig.count("duet_handoffs_unnamed_total") == 1
    is_held_for_a_lease(rig)
    assert not rig.client.posts_of("release"), "what no decode may see, none is sent to refuse"


async def test_kv_behind_a_handoff_that_came_twice_is_held() -> None:
    rig = rig_of()
    rig.client.on(leg="prefill", reply=prefill_reply(remote_request_id="always-the-same"))
    rig.client.on(leg="decode", reply=answered())
    await rig.ask("r1")
    assert held(rig) == 0
    await failed(rig, request_id="r2")
    is_held_for_a_lease(rig)


DIES = {
    "behind its status": (Script([CUT], 200, {"content-type": "text/event-stream"}), True),
    "behind the role": (sse_reply(ROLE, CUT, done=False), True),
    "behind a comment": (Script([b": ping\n\n", CUT], 200, {"content-type": "text/event-stream"}), True),
    "by an error event": (sse_reply(ROLE, {"error": {"message": "KV load failed", "code": 500}}), True),
    "by nonsense": (Script([b"data: {nonsense\n\n"], 200, {"content-type": "text/event-stream"}), True),
    "by nothing but its end": (sse_reply(), True),
    "unary, in its body": (Script([b'{"choi', CUT]), False),
    "unary, by an error": (json_reply({"error": {"message": "KV load failed", "code": 500}}), False),
}


@pytest.mark.parametrize("how", DIES)
async def test_a_decode_that_dies_before_it_says_anything_has_not_fetched_its_kv(how: str) -> None:
    """It is released by another call, and held where that is not to be had."""
    reply, stream = DIES[how]
    for release, left in ((REFUSED, 0), (json_reply({}, 404), 1)):
        rig = rig_of(release=release)
        rig.client.on(leg="prefill", reply=prefilled())
        rig.client.on(leg="decode", reply=reply)
        await failed(rig, stream=stream)
        assert rig.count("duet_handoffs_abandoned_total") == 1
        assert rig.count("duet_handoffs_released_total") == 1 - left
        assert held(rig) == left
        rig.clock.advance(LEASE + 1)
        assert held(rig) == 0


async def test_a_decode_that_falls_silent_behind_its_status_has_not_fetched_its_kv() -> None:
    rig = rig_of(first_token=0.05)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed(asyncio.Event()))
    await failed(rig, stream=True)
    assert rig.count("duet_handoffs_released_total") == 1


UNTAKEN = {
    "behind its status": (streamed(asyncio.Event()), True),
    "behind the role": (sse_reply(ROLE, asyncio.Event(), done=False), True),
    "unary, behind its status": (Script([asyncio.Event()]), False),
}


@pytest.mark.parametrize("how", UNTAKEN)
async def test_kv_of_a_client_that_leaves_before_decode_says_anything_is_released(how: str) -> None:
    """Decode's headers say nothing: they may leave before it has taken the request up, and then nobody frees it."""
    reply, stream = UNTAKEN[how]
    rig = rig_of()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=reply)
    asked = asyncio.create_task(rig.ask(stream=stream))
    await until(lambda: rig.client.posts_of("decode"))
    for _ in range(20):  # until its reply is being read
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await rig.coordinator.drain()
    assert rig.count("duet_handoffs_released_total") == len(rig.client.posts_of("release")) == 1
    assert held(rig) == 0


async def test_a_decode_that_dies_in_mid_answer_has_fetched_its_kv() -> None:
    rig = rig_of()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", CUT))
    await failed(rig, stream=True)
    assert rig.count("duet_handoffs_abandoned_total") == held(rig) == 0


@pytest.mark.parametrize("first", [Script(before=[CUT]), EngineTimeout("nothing came", engine=DECODE.id)])
async def test_where_there_is_one_decode_a_release_that_is_lost_is_sent_once_more(first: Script | EngineError) -> None:
    rig = Rig(policies=ONCE)
    rig.client.on(leg="release", reply=first, times=1)
    rig.client.on(leg="release", reply=REFUSED)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=REFUSED)
    with pytest.raises(EngineError):
        await rig.ask()
    await rig.coordinator.drain()
    assert len(rig.client.posts_of("release")) == 2
    assert rig.count("duet_handoffs_released_total") == 1
    assert held(rig) == 0


async def test_while_a_release_is_on_its_way_the_kv_is_held() -> None:
    gate = asyncio.Event()
    rig = rig_of(release=Script(REFUSED.parts, 400, REFUSED.headers, before=[gate]))
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=REFUSED)
    with pytest.raises(EngineError):
        await rig.ask()
    await until(lambda: rig.client.posts_of("release"))
    assert held(rig) == 1
    gate.set()
    await rig.coordinator.drain()
    assert held(rig) == 0


@pytest.mark.parametrize(
    ("failure", "lies"),
    [
        (EngineUnreachable("no connection", engine=PREFILL.id), 0),
        (Script(before=[CUT]), 1),
        (EngineTimeout("no connection in time", engine=PREFILL.id, worked=False), 0),
        (EngineTimeout("nothing came", engine=PREFILL.id), 1),
        (EngineBroken("half a reply", engine=PREFILL.id), 1),
        (json_reply({"error": {"message": "broken", "code": 500}}, 500), 0),
        (json_reply({"error": "who are you"}, 401), 0),
        (REFUSED, 0),
    ],
    ids=["no connection", "reset", "late connection", "silent", "half", "500", "401", "400"],
)
@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "together"])
async def test_what_a_failed_prefill_may_have_left(failure: Script | EngineError, lies: int, together: bool) -> None:
    """What has never reached the engine, or what it refused, left nothing there."""
    rig = rig_of(**({"kv": Together()} if together else {}))
    rig.client.on(leg="prefill", reply=failure)
    rig.client.on(leg="decode", reply=Script(before=(asyncio.Event(),)))
    await failed(rig)
    assert (held(rig), rig.count("duet_handoffs_unnamed_total")) == (lies, lies)
    rig.clock.advance(LEASE + 1)
    assert held(rig) == 0


@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "together"])
async def test_a_prefill_that_is_cut_before_it_has_a_connection_left_nothing(together: bool) -> None:
    rig = rig_of(**({"kv": Together()} if together else {}))
    rig.client.connected.clear()
    asked = asyncio.create_task(rig.ask(stream=True))
    await rig.client.connecting.wait()
    for _ in range(20):  # until the other leg is on its way too, where there is one
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert held(rig) == rig.count("duet_handoffs_unnamed_total") == 0


async def test_what_is_over_is_forgotten_though_nobody_looks_at_the_metrics() -> None:
    rig = rig_of()
    abandoned = Abandoned(rig.client, rig.kv, rig.fleet, Picker(), rig.clock, Metrics())
    for _ in range(1000):
        abandoned.may_lie_unnamed()
        rig.clock.advance(LEASE + 1)
    assert len(abandoned._held) == 1


LEGS_TOGETHER = {
    "decode refuses while prefill works": (Script(before=[asyncio.Event()]), REFUSED, "unnamed"),
    "decode dies while prefill works": (Script(before=[asyncio.Event()]), sse_reply(ROLE, CUT, done=False), "unnamed"),
    "decode dies behind prefill": (prefill_reply(None), "later", "abandoned"),
}


@pytest.mark.parametrize("how", LEGS_TOGETHER)
async def test_kv_of_legs_that_run_at_once_is_held_too(how: str) -> None:
    prefill, decode, counted = LEGS_TOGETHER[how]
    rig = rig_of(kv=Together())
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=prefill)
    late = sse_reply(ROLE, gate, CUT, done=False)
    rig.client.on(leg="decode", reply=decode if isinstance(decode, Script) else late)
    asked = asyncio.create_task(failed(rig, stream=True))
    if decode == "later":
        await prefill_is_done(rig)
        gate.set()
    await asked
    assert rig.count(f"duet_handoffs_{counted}_total") == 1
    is_held_for_a_lease(rig)


@pytest.mark.parametrize("prefill", ["working", "done"])
async def test_a_client_that_leaves_before_legs_that_run_at_once_say_anything(prefill: str) -> None:
    rig = rig_of(kv=Together())
    rig.client.on(leg="prefill", reply=prefill_reply(None) if prefill == "done" else Script(before=[asyncio.Event()]))
    rig.client.on(leg="decode", reply=sse_reply(ROLE, asyncio.Event()))
    asked = asyncio.create_task(rig.ask(stream=True))
    await until(lambda: rig.client.posts_of("decode") and rig.client.posts_of("prefill"))
    if prefill == "done":
        await prefill_is_done(rig)
    for _ in range(20):  # until decode's reply is being read
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    is_held_for_a_lease(rig)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_good_answer_of_legs_that_run_at_once_leaves_nothing(stream: bool) -> None:
    """Also where it is there before prefill's reply, which is not waited for then."""
    rig = rig_of(kv=Together())
    rig.client.on(leg="prefill", reply=Script(before=[asyncio.Event()]))
    rig.client.on(leg="decode", reply=streamed(event("hi")) if stream else answered())
    await rig.ask(stream=stream)
    assert held(rig) == 0


async def test_a_connector_that_hands_nothing_over_holds_nothing() -> None:
    """Its files are nobody's to free, whatever becomes of a request."""
    rig = rig_of(kv=connector("example"))
    rig.client.on(leg="prefill", reply=prefill_reply(None))
    rig.client.on(leg="decode", reply=EngineUnreachable("gone", engine=DECODE.id))
    await failed(rig)
    assert held(rig) == rig.count("duet_handoffs_abandoned_total") == 0
