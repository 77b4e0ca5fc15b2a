"""Attempts after one that failed: which engines, which ids, what is counted, and when there is none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import (
    EngineBroken,
    EngineError,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    HandoffInvalid,
    RequestCancelled,
)
from gateway.dispatch.policy import Policies, Policy
from gateway.lifecycle import State
from tests.fakes.script import CUT, Script, json_reply
from tests.unit.gateway.coordinating import (
    DECODE,
    LEASE,
    PREFILL,
    KeptSink,
    Rig,
    answered,
    prefill_reply,
    prefilled,
    streamed,
    until,
)

PREFILL_2 = Engine.at("http://127.0.0.1:8101", Role.PREFILL)
DECODE_2 = Engine.at("http://127.0.0.1:8201", Role.DECODE)
FOUR = (PREFILL, PREFILL_2, DECODE, DECODE_2)
FAULT = json_reply({"error": {"message": "broken", "code": 500}}, 500)
REFUSED = json_reply({"error": {"message": "no", "code": 400}}, 400)


def four(**options: Any) -> Rig:
    """Two engines of each role; releases are heard."""
    rig = Rig(engines=FOUR, **options)
    rig.client.on(leg="release", reply=REFUSED)
    return rig


def unreachable(engine: Engine) -> EngineUnreachable:
    return EngineUnreachable("gone", engine=engine.id)


async def record_of(rig: Rig, request_id: str = "r1") -> Any:
    await rig.coordinator.drain()
    return await rig.store.get(request_id)


@pytest.mark.parametrize("failure", [FAULT, unreachable(PREFILL), EngineBroken("half", engine=PREFILL.id)])
async def test_another_prefill_does_what_the_first_did_not(failure: Script | EngineError) -> None:
    rig = four()
    rig.client.on(leg="prefill", engine=PREFILL.id, reply=failure)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=answered("hi"))
    sink = await rig.ask()
    assert json.loads(sink.body)["choices"][0]["text"] == "hi"
    ids = [seen.headers["x-request-id"] for seen in rig.client.posts]
    assert ids == ["r1-1-prefill", "r1-2-prefill", "r1-2-decode"], "new ids for each attempt"
    record = await record_of(rig)
    assert (record.state, record.attempt, record.prefill) == (State.FINISHED, 2, PREFILL_2.id)
    assert [e.event for e in await rig.store.events("r1")][2:4] == ["retried", "prefill_sent"]
    assert rig.count("duet_retries_total", after="prefill") == 1
    assert rig.count("duet_engine_failures_total", engine=PREFILL.id) == 1
    assert rig.loads() == [0, 0, 0, 0]
    assert sum((await rig.store.loads([e.id for e in FOUR])).values()) == 0


async def test_a_new_decode_gets_a_new_handoff_and_the_old_one_is_released() -> None:
    rig = four()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", engine=DECODE.id, reply=unreachable(DECODE))
    rig.client.on(leg="decode", reply=answered())
    await rig.ask()
    await record_of(rig)
    handoffs = [seen.json["kv_transfer_params"]["remote_request_id"] for seen in rig.client.posts_of("decode")]
    assert handoffs == ["cmpl-r1-1-prefill-0", "cmpl-r1-2-prefill-0"]
    (release,) = rig.client.posts_of("release")
    assert release.json["kv_transfer_params"]["remote_request_id"] == handoffs[0]
    assert release.json["n"] == 0, "vLLM's handler refuses it: nothing is computed"
    assert rig.count("duet_handoffs_abandoned_total") == rig.count("duet_handoffs_released_total") == 1
    assert rig.count("duet_handoffs_held") == 0


async def test_a_handoff_that_nobody_could_release_is_held_until_its_lease_ends() -> None:
    rig = Rig()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=REFUSED)
    rig.client.on(leg="release", reply=json_reply({}, 404))
    with pytest.raises(EngineRefused):
        await rig.ask()
    await record_of(rig)
    assert rig.count("duet_handoffs_abandoned_total") == 1
    assert rig.count("duet_handoffs_released_total") == 0
    assert rig.count("duet_handoffs_held") == 1
    rig.clock.advance(60)
    assert rig.count("duet_handoffs_held") == 0


@pytest.mark.parametrize("cut", ["cancelled", "silent", "half"])
async def test_what_a_cut_prefill_may_have_left_is_held_until_its_lease_ends(cut: str) -> None:
    rig = Rig()
    failures: dict[str, EngineError] = {
        "silent": EngineTimeout("nothing came", engine=PREFILL.id),
        "half": EngineBroken("half a reply", engine=PREFILL.id),
    }
    rig.client.on(leg="prefill", reply=failures.get(cut, Script(before=(asyncio.Event(),))))
    asked = asyncio.create_task(rig.ask())
    if cut == "cancelled":
        await until(lambda: rig.client.posts_of("prefill"))
        asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert rig.count("duet_handoffs_held") == 1
    rig.clock.advance(LEASE + 1)
    assert rig.count("duet_handoffs_held") == 0


async def test_a_handoff_is_used_once_even_if_an_engine_returns_it_again() -> None:
    rig = Rig()
    rig.client.on(leg="prefill", reply=prefill_reply(remote_request_id="always-the-same"))
    rig.client.on(leg="decode", reply=answered())
    await rig.ask("r1")
    with pytest.raises(HandoffInvalid, match="returned before"):
        await rig.ask("r2")
    assert len(rig.client.posts_of("decode")) == 1


@pytest.mark.parametrize("leg", ["prefill", "decode"])
async def test_a_4xx_is_the_clients_answer_at_once_and_no_fault_of_the_engine(leg: str) -> None:
    rig = four()
    rig.client.on(leg=leg, reply=REFUSED)
    rig.client.on(leg="prefill", reply=prefilled())
    with pytest.raises(EngineRefused):
        await rig.ask()
    assert len(rig.client.posts_of(leg)) == 1
    assert [rig.count("duet_engine_failures_total", engine=e.id) for e in FOUR] == [0] * 4


async def test_what_every_engine_fails_at_is_no_engines_fault() -> None:
    rig = four()
    rig.client.on(leg="prefill", reply=FAULT)
    for n in range(6):
        with pytest.raises(EngineRefused):
            await rig.ask(f"r{n}")
    assert all(m.breaker.lets_through(rig.clock.monotonic()) for m in rig.fleet.members.values())


async def test_an_engine_that_fails_where_another_does_not_is_left_alone_for_a_while() -> None:
    rig = four()
    rig.client.on(leg="prefill", engine=PREFILL.id, reply=FAULT)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=answered())
    for n in range(12):
        await rig.ask(f"r{n}")
    asked = [engine.id for engine, seen in rig.client.calls if seen.leg == "prefill"]
    assert asked.count(PREFILL.id) == 3
    assert rig.count("duet_breaker_opened_total", engine=PREFILL.id) == 1
    rig.clock.advance(2.5)
    rig.client.rules.pop(1)
    for n in range(12, 16):
        await rig.ask(f"r{n}")
    assert [engine.id for engine, seen in rig.client.calls if seen.leg == "prefill"].count(PREFILL.id) > 3


async def test_the_only_decode_gets_another_prefills_kv_where_it_could_not_have_the_first() -> None:
    rig = Rig(engines=(PREFILL, PREFILL_2, DECODE))
    rig.client.on(leg="release", reply=REFUSED)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", times=1, reply=FAULT)
    rig.client.on(leg="decode", reply=answered())
    await rig.ask()
    record = await record_of(rig)
    assert (record.state, record.attempt, record.prefill) == (State.FINISHED, 2, PREFILL_2.id)
    blamed = [rig.count("duet_engine_failures_total", engine=e.id) for e in (PREFILL, PREFILL_2, DECODE)]
    assert blamed == [1, 0, 0]


async def test_a_request_that_the_only_decode_fails_at_is_tried_once_with_each_prefill() -> None:
    rig = Rig(engines=(PREFILL, PREFILL_2, DECODE), policies=Policies(attempts=9))
    rig.client.on(leg="release", reply=REFUSED)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=FAULT)
    with pytest.raises(EngineRefused):
        await rig.ask()
    assert len(rig.client.posts_of("decode")) == 2
    assert [rig.count("duet_engine_failures_total", engine=e.id) for e in FOUR] == [0] * 4


async def test_nothing_is_tried_again_once_the_client_has_a_byte() -> None:
    rig = four()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", CUT))
    sink = await rig.ask(stream=True)
    assert b"engine_broken" in sink.body
    assert len(rig.client.posts_of("decode")) == 1


@pytest.mark.parametrize(("policies", "prefills"), [(Policies(attempts=1), 1), (Policies(Policy.FAIL), 1)])
async def test_no_second_attempt_where_none_is_wanted(policies: Policies, prefills: int) -> None:
    rig = four(policies=policies)
    rig.client.on(leg="prefill", reply=FAULT)
    with pytest.raises(EngineRefused):
        await rig.ask()
    assert len(rig.client.posts_of("prefill")) == prefills


async def test_a_used_up_budget_forbids_it_and_is_counted() -> None:
    rig = four(share=0.0, floor=0)
    rig.client.on(leg="prefill", reply=FAULT)
    with pytest.raises(EngineRefused):
        await rig.ask()
    assert rig.count("duet_retries_denied_total") == 1


@pytest.mark.parametrize(
    ("policies", "reply", "reason"),
    [
        (Policies(on_prefill_failure=Policy.LOCAL), FAULT, "prefill_failed"),
        (Policies(on_handoff_missing=Policy.LOCAL), prefill_reply(None), "handoff_missing"),
    ],
)
async def test_decode_does_it_all_where_the_policy_says_so_and_it_is_counted(
    policies: Policies, reply: Script, reason: str
) -> None:
    rig = Rig(policies=policies)
    rig.client.on(leg="prefill", reply=reply)
    rig.client.on(leg="decode", reply=answered("hi"))
    await rig.ask()
    (decode,) = rig.client.posts_of("decode")
    assert "kv_transfer_params" not in decode.json
    record = await record_of(rig)
    assert (record.state, record.prefill, record.unsplit) == (State.FINISHED, None, reason)
    assert rig.count("duet_unsplit_total", reason=reason) == 1


async def test_without_any_prefill_engine_decode_does_it_all_if_that_is_allowed() -> None:
    rig = Rig(policies=Policies(on_prefill_failure=Policy.LOCAL))
    rig.fleet.members[PREFILL.id].up = False
    rig.client.on(leg="decode", reply=answered("hi"))
    await rig.ask()
    assert rig.count("duet_unsplit_total", reason="no_prefill") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_operator_ends_a_request_and_its_client_is_told(stream: bool) -> None:
    rig = Rig()
    gate = asyncio.Event()
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed("one", gate) if stream else Script(before=(gate,)))
    sink = KeptSink()
    run = asyncio.create_task(rig.ask(sink=sink, stream=stream))
    await until(lambda: sink.body if stream else rig.client.posts_of("decode"))
    rig.client.on(leg="release", reply=REFUSED)
    assert not rig.coordinator.cancel("another")
    assert rig.coordinator.cancel("r1")
    if stream:
        await run
        assert sink.body.endswith(b"data: [DONE]\n\n")
        assert b"request_cancelled" in sink.body
    else:
        with pytest.raises(RequestCancelled):
            await run
    assert rig.client.posts_of("decode")[0].left.is_set()
    assert (await record_of(rig)).state is State.CANCELLED
    assert not rig.coordinator.cancel("r1"), "it is over"
    assert rig.loads() == [0, 0]


async def test_a_gateway_that_stood_still_trusts_no_handoff_from_before() -> None:
    """Stopped for longer than a lease while prefill's reply lay there: a new prefill, no decode on freed blocks."""
    rig = Rig()
    rig.client.on(leg="release", reply=REFUSED)
    rig.pulse.beat()

    def answers(seen: Any) -> Script:
        if seen.headers["x-request-id"] == "r1-1-prefill":
            rig.clock.advance(2 * LEASE)
        return prefill_reply(remote_request_id=f"cmpl-{seen.headers['x-request-id']}-0")

    rig.client.on(leg="prefill", reply=answers)
    rig.client.on(leg="decode", reply=answered("hi"))
    await rig.ask()
    (decode,) = rig.client.posts_of("decode")
    assert decode.json["kv_transfer_params"]["remote_request_id"] == "cmpl-r1-2-prefill-0"
    assert rig.count("duet_retries_total", after="handoff") == 1
    assert rig.count("duet_engine_failures_total", engine=PREFILL.id) == 0, "it was no fault of the engine"


async def test_a_decode_whose_prefill_died_is_not_to_blame() -> None:
    rig = four()
    rig.client.on(leg="prefill", reply=prefilled())

    def dies(_: object) -> Script:
        for engine in (PREFILL, PREFILL_2):
            rig.fleet.members[engine.id].up = engine is PREFILL_2
        return FAULT

    rig.client.on(leg="decode", reply=dies, times=1)
    rig.client.on(leg="decode", reply=answered())
    await rig.ask()
    assert [rig.count("duet_engine_failures_total", engine=e.id) for e in FOUR] == [0] * 4
    assert rig.count("duet_retries_total", after="decode") == 1


async def test_prefills_cached_tokens_are_in_usage_however_the_stream_is_cut() -> None:
    usage = {"prompt_tokens": 110, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 110}}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    middle = last.index(b"usage") + 2
    rig = Rig()
    reply = json.loads(b"".join(p for p in prefill_reply().parts if isinstance(p, bytes)))
    reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 64}
    rig.client.on(leg="prefill", reply=json_reply(reply))
    rig.client.on(leg="decode", reply=streamed("one", last[:middle], last[middle:]))
    sink = await rig.ask(stream=True, stream_options={"include_usage": True})
    assert b'"cached_tokens":64' in sink.body
    record = await record_of(rig)
    assert record.usage["prompt_tokens_details"] == {"cached_tokens": 64}
