"""The coordinator: order of things, and one clean way out of each of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from common.errors import (
    BadRequest,
    EngineBroken,
    EngineUnreachable,
    HandoffExpired,
    ModelNotFound,
    NoRoutableEngine,
    StoreUnavailable,
)
from common.ids import RandomIds
from gateway.dispatch.attempt import ARRIVES_WITHIN
from gateway.dispatch.policy import Policies
from gateway.lifecycle import State
from gateway.store.reaper import Reaper
from tests.fakes.script import CUT, Script, json_reply
from tests.unit.gateway.coordinating import (
    DECODE,
    LEASE,
    PREFILL,
    KeptSink,
    Rig,
    Together,
    answered,
    event,
    prefill_reply,
    prefilled,
    streamed,
    until,
)


async def state_of(rig: Rig, request_id: str = "r1") -> State:
    await rig.coordinator.drain()
    record = await rig.store.get(request_id)
    assert record is not None
    return record.state


async def test_prefill_then_decode() -> None:
    rig = Rig()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=answered("hi"))
    sink = await rig.ask()
    assert json.loads(sink.body)["choices"][0]["text"] == "hi"
    assert sink.ended
    assert [seen.leg for seen in rig.client.posts] == ["prefill", "decode"]
    assert await state_of(rig) is State.FINISHED
    assert rig.loads() == [0, 0]
    assert rig.count("duet_requests_total", endpoint="/v1/completions", outcome="finished") == 1


async def test_the_handoff_counts_from_prefills_reply_not_from_its_start() -> None:
    """A prompt may wait longer in prefill's queue than a lease lasts: the lease begins when prefill ends."""
    rig = Rig()

    def slow(_: object) -> Script:
        rig.clock.advance(10 * LEASE)
        return prefill_reply()

    rig.client.on(leg="prefill", reply=slow)
    rig.client.on(leg="decode", reply=answered())
    await rig.ask()
    assert await state_of(rig) is State.FINISHED


async def test_decode_is_never_sent_after_the_handoffs_time() -> None:
    class Late(type(Rig().kv)):  # type: ignore[misc]
        def handoff(self, ctx, reply):  # type: ignore[no-untyped-def]
            handoff = super().handoff(ctx, reply)
            rig.clock.advance(LEASE)
            return handoff

    rig = Rig(kv=Late(lease=LEASE))
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="release", reply=json_reply({}, 400))
    with pytest.raises(HandoffExpired, match="ran out"):
        await rig.ask()
    assert not rig.client.posts_of("decode")
    assert await state_of(rig) is State.FAILED
    assert len(rig.client.posts_of("prefill")) == 3, "a new prefill each time, and no more than there are attempts"
    assert rig.count("duet_handoffs_abandoned_total") == 3, "KV waits there for nobody"
    assert rig.count("duet_retries_total", after="handoff") == 2


async def test_concurrent_legs_start_at_once_and_a_null_reply_is_fine() -> None:
    rig = Rig(kv=Together())
    gate = asyncio.Event()
    prefill = prefill_reply(None)
    rig.client.on(leg="prefill", reply=Script(prefill.parts, prefill.status, prefill.headers, before=(gate,)))
    rig.client.on(leg="decode", reply=streamed("one", gate, "two"))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink, stream=True))
    await until(lambda: sink.body)
    assert [seen.leg for seen in rig.client.posts] == ["prefill", "decode"], "decode did not wait for prefill"
    transfers = [json.loads(seen.body)["kv_transfer_params"]["transfer_id"] for seen in rig.client.posts]
    assert len(set(transfers)) == 1
    gate.set()
    await run
    assert sink.body.endswith(b"data: [DONE]\n\n")
    assert await state_of(rig) is State.FINISHED
    assert [e.event for e in await rig.store.events("r1")] == [
        "admitted",
        "prefill_sent",
        "decode_sent",
        "prefill_done",
        "completed",
    ]
    assert rig.loads() == [0, 0]


@pytest.mark.parametrize("failing", ["prefill", "decode"])
async def test_one_failing_leg_of_two_ends_the_other(failing: str) -> None:
    rig = Rig(kv=Together(), policies=Policies(attempts=1))
    never = asyncio.Event()
    hangs = Script(before=(never,))
    error = EngineUnreachable("gone", engine=PREFILL.id if failing == "prefill" else DECODE.id)
    rig.client.on(leg="prefill", reply=error if failing == "prefill" else hangs)
    rig.client.on(leg="decode", reply=error if failing == "decode" else hangs)
    with pytest.raises(EngineUnreachable, match="gone"):
        await rig.ask()
    (other,) = rig.client.posts_of("decode" if failing == "prefill" else "prefill")
    assert other.left.is_set()
    assert await state_of(rig) is State.FAILED
    assert rig.loads() == [0, 0]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prefill_that_is_lost_ends_a_decode_that_waits_for_its_kv(stream: bool) -> None:
    """Prefill has answered, its KV is not there yet, and its engine dies: decode would be silent until its deadline."""
    rig = Rig(kv=Together(), policies=Policies(attempts=1))
    rig.client.on(leg="prefill", reply=prefill_reply(None))
    rig.client.on(leg="decode", reply=Script(before=(asyncio.Event(),)))
    run = asyncio.create_task(rig.ask(stream=stream))
    await until(lambda: rig.client.posts_of("decode"))
    rig.fleet.members[PREFILL.id].lose()
    with pytest.raises(EngineBroken, match="lost while decode waited"):
        await asyncio.wait_for(run, 5)
    assert rig.client.posts_of("decode")[0].left.is_set()
    assert await state_of(rig) is State.FAILED
    assert rig.loads() == [0, 0]


async def test_a_prefill_that_is_lost_after_decode_began_changes_nothing() -> None:
    rig = Rig(kv=Together())
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=prefill_reply(None))
    rig.client.on(leg="decode", reply=streamed("one", gate, "two"))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink, stream=True))
    await until(lambda: sink.body)
    rig.fleet.members[PREFILL.id].lose()
    await until(lambda: True)
    gate.set()
    await asyncio.wait_for(run, 5)
    assert sink.body.endswith(b"data: [DONE]\n\n")
    assert await state_of(rig) is State.FINISHED


async def test_a_prefill_that_is_lost_long_after_its_reply_leaves_a_whole_answer_alone() -> None:
    rig = Rig(kv=Together())
    gate = asyncio.Event()
    answer = answered("hi")
    rig.client.on(leg="prefill", reply=prefill_reply(None))
    rig.client.on(leg="decode", reply=Script(answer.parts, answer.status, answer.headers, before=(gate,)))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink))
    await until(lambda: rig.client.posts_of("decode") and not rig.fleet.members[PREFILL.id].local)
    rig.clock.advance(ARRIVES_WITHIN + 1)
    rig.fleet.members[PREFILL.id].lose()
    await until(lambda: True)
    gate.set()
    await asyncio.wait_for(run, 5)
    assert json.loads(sink.body)["choices"][0]["text"] == "hi"


async def test_an_answer_that_is_whole_stays_so_whatever_prefill_says_after_it() -> None:
    rig = Rig(kv=Together())
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=Script([b"{}"], 500, {}, before=(gate,)))
    rig.client.on(leg="decode", reply=answered("hi"))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink))
    await asyncio.wait_for(run, 5)
    assert json.loads(sink.body)["choices"][0]["text"] == "hi"
    assert rig.client.posts_of("prefill")[0].left.is_set(), "its call is ended: nobody needs the reply"
    assert await state_of(rig) is State.FINISHED
    assert rig.loads() == [0, 0]
    assert rig.count("duet_requests_total", endpoint="/v1/completions", outcome="finished") == 1


async def test_a_request_that_cannot_be_split_goes_whole_or_is_refused() -> None:
    rig = Rig()
    rig.client.on(leg="decode", reply=answered())
    await rig.ask(prompt=["a", "b"])
    assert not rig.client.posts_of("prefill")
    assert "kv_transfer_params" not in json.loads(rig.client.posts[0].body)
    record = await rig.store.get("r1")
    assert record is not None
    assert (record.prefill, record.unsplit) == (None, "several_prompts")
    assert rig.count("duet_unsplit_total", reason="several_prompts") == 1
    strict = Rig(refuse_unsplit=True)
    with pytest.raises(BadRequest, match="several_prompts"):
        await strict.ask(prompt=["a", "b"])
    assert not strict.client.calls


async def test_an_unknown_model_costs_nothing() -> None:
    rig = Rig()
    with pytest.raises(ModelNotFound, match="`x`"):
        await rig.ask(model="x")
    assert await rig.store.recent(10) == []
    for member in rig.fleet.members.values():
        member.models = {}
    with pytest.raises(NoRoutableEngine, match="no engine has answered yet"):
        await rig.ask(model="x")


async def test_without_a_store_nothing_is_admitted_and_no_engine_is_called() -> None:
    rig = Rig()
    rig.store.available = False
    with pytest.raises(StoreUnavailable):
        await rig.ask()
    assert not rig.client.calls
    assert rig.loads() == [0, 0]
    rig.store.available = True
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=answered())
    await rig.ask("r2")
    assert await state_of(rig, "r2") is State.FINISHED


async def test_a_store_that_goes_away_later_does_not_stop_the_answer_and_gets_the_record_when_it_is_back() -> None:
    rig = Rig()
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", gate, "two"))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink, stream=True))
    await until(lambda: sink.body)
    rig.store.available = False
    gate.set()
    await run
    assert sink.ended
    assert b"two" in sink.body
    rig.store.available = True
    assert await state_of(rig) is State.FINISHED
    assert rig.count("duet_store_errors_total", op="apply") >= 1


@pytest.mark.parametrize("leg", ["prefill", "decode"])
async def test_cancelling_closes_the_leg_and_frees_the_engines(leg: str) -> None:
    rig = Rig()
    hangs = Script(before=(asyncio.Event(),))
    rig.client.on(leg="prefill", reply=hangs if leg == "prefill" else prefilled())
    rig.client.on(leg="decode", reply=hangs)
    run = asyncio.create_task(rig.ask())
    await until(lambda: rig.client.posts_of(leg))
    assert sum(rig.loads()) >= 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert rig.client.posts_of(leg)[0].left.is_set()
    assert await state_of(rig) is State.CANCELLED
    assert rig.loads() == [0, 0]


async def test_a_stream_that_breaks_ends_with_an_error_event() -> None:
    rig = Rig()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", CUT))
    sink = await rig.ask(stream=True)
    first, error, done, rest = sink.body.decode().split("\n\n")
    assert json.loads(first.removeprefix("data: ")) == event("one")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_broken"
    assert (done, rest) == ("data: [DONE]", "")
    record = await rig.store.get("r1")
    assert await state_of(rig) is State.FAILED
    assert record is not None
    assert rig.count("duet_errors_total", code="engine_broken") == 1


async def test_a_stream_that_ends_before_its_first_event_has_a_status() -> None:
    rig = Rig()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed(CUT))
    sink = KeptSink()
    with pytest.raises(EngineBroken):
        await rig.ask(sink=sink, stream=True)
    assert not sink.started


async def test_a_fault_of_the_gateway_closes_the_record() -> None:
    class Faulty(type(Rig().kv)):  # type: ignore[misc]
        def handoff(self, ctx, reply):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError

    rig = Rig(kv=Faulty())
    rig.client.on(leg="prefill", reply=prefilled())
    with pytest.raises(ZeroDivisionError):
        await rig.ask()
    assert await state_of(rig) is State.FAILED
    assert rig.loads() == [0, 0]


async def test_another_replicas_word_stands() -> None:
    """A gateway that lost its lease and lives on: its request was closed by another. It counts that, and goes on."""
    rig = Rig()
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", gate))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink, stream=True))
    await until(lambda: sink.body)
    await until(lambda: rig.count("duet_store_seconds_count", op="apply") == 1)
    other = Reaper(rig.store, clock=rig.clock, ids=RandomIds(), owner="replica-2", lease=10)
    await rig.store.heartbeat("replica-1", 1)
    rig.clock.advance(2)
    assert await other.reap() == 1
    gate.set()
    await run
    assert sink.ended
    assert await state_of(rig) is State.EXPIRED
    assert rig.count("duet_store_conflicts_total") == 1
