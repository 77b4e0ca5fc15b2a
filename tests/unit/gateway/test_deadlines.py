"""What each deadline of a request bounds, and what moves it on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import EngineBroken, EngineTimeout, StoreUnavailable
from gateway.dispatch import deadlines
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.policy import Policies
from gateway.settings import Settings
from gateway.store.memory import MemoryStore
from tests.fakes.script import Script, json_reply, sse_reply
from tests.unit.gateway.coordinating import DECODE, PREFILL, Rig, event, prefilled, streamed, until

SOON, ENOUGH = 0.1, 20.0
PING = b": ping\n\n"
ROLE = {"id": "d", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
REFUSED = json_reply({"error": {"message": "no", "code": 400}}, 400)
ONCE = Policies(attempts=1)
DECODE_2 = Engine.at("http://127.0.0.1:8201", Role.DECODE)


def rig_of(decode: Script, **options: Any) -> Rig:
    rig = Rig(policies=ONCE, **options)
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=decode)
    rig.client.on(leg="release", reply=REFUSED)
    return rig


def after(*times: float) -> list[asyncio.Event]:
    """Events that happen so many seconds from now."""
    made = [asyncio.Event() for _ in times]
    for gate, at in zip(made, times, strict=True):
        asyncio.get_running_loop().call_later(at, gate.set)
    return made


async def test_a_first_token_may_take_longer_than_idle() -> None:
    """Decode waits for a long prompt, its headers there long ago; then it goes on in good time."""
    (late,) = after(3 * SOON)
    rig = rig_of(sse_reply(ROLE, late, event("one")), first_token=ENOUGH, idle=SOON)
    sink = await rig.ask(stream=True)
    assert b"one" in sink.body
    assert b'"error"' not in sink.body


@pytest.mark.parametrize(
    "quiet", [[], [PING] * 50, [ROLE] * 50, [{"choices": []}] * 50], ids=["", "ping", "role", "no"]
)
async def test_the_first_token_has_a_deadline_whatever_else_comes(quiet: list[Any]) -> None:
    gates = after(*(n * SOON / 4 for n in range(len(quiet))))
    parts = [part for pair in zip(gates, quiet, strict=True) for part in pair]
    rig = rig_of(sse_reply(*parts, asyncio.Event()), first_token=2 * SOON, idle=ENOUGH)
    with pytest.raises(EngineTimeout, match=r"no first token within 0\.2 s"):
        await rig.ask(stream=True)
    assert rig.client.posts_of("decode")[0].left.is_set()


@pytest.mark.parametrize("quiet", [PING, {"choices": []}, {"choices": [{"index": 0, "delta": {}}]}, b"data:\n\n"])
async def test_what_only_keeps_the_connection_alive_is_no_token(quiet: Any) -> None:
    gates = after(*(n * SOON / 4 for n in range(200)))
    parts = [part for gate in gates for part in (gate, quiet)]
    rig = rig_of(streamed("one", *parts), first_token=ENOUGH, idle=2 * SOON)
    sink = await rig.ask(stream=True)
    assert b"engine_timeout" in sink.body
    assert sink.body.endswith(b"data: [DONE]\n\n")


async def test_tokens_without_text_are_tokens() -> None:
    gates = after(*(n * SOON / 2 for n in range(1, 8)))
    parts = [part for gate in gates for part in (gate, event(""))]
    rig = rig_of(streamed("one", *parts), first_token=ENOUGH, idle=2 * SOON)
    assert b'"error"' not in (await rig.ask(stream=True)).body


async def test_admission_has_a_deadline_of_its_own() -> None:
    rig = Rig(admission=SOON)

    class Slow(MemoryStore):
        async def admit(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(ENOUGH)

    rig.coordinator._store = Slow(rig.clock)
    with pytest.raises(StoreUnavailable, match=r"not be admitted within 0\.1 s"):
        await rig.ask()
    assert not rig.client.posts
    assert rig.loads() == [0, 0]
    assert rig.count("duet_requests_in_flight") == 0


def test_each_setting_bounds_what_its_name_says() -> None:
    of = LegDeadlines.of(connect=1, headers=2, prefill=3, first_token=4, idle=5, unary=6)
    assert (of.prefill.connect, of.prefill.headers, of.prefill.whole) == (1, 3, 3)
    stream = of.decode_stream
    assert (stream.connect, stream.headers, stream.first, stream.idle, stream.whole) == (1, 2, 4, 5, None)
    assert (of.decode_unary.connect, of.decode_unary.headers, of.decode_unary.whole) == (1, 6, 6)


@pytest.mark.parametrize(
    "empty",
    [sse_reply(), sse_reply(ROLE), sse_reply({"choices": [], "usage": {"prompt_tokens": 1}}), streamed(PING)],
    ids=["done", "role and done", "usage and done", "comment and done"],
)
async def test_a_stream_that_says_nothing_is_no_answer(empty: Script) -> None:
    """Another engine may have one."""
    with pytest.raises(EngineBroken, match="said nothing"):
        await rig_of(empty).ask(stream=True)
    rig = Rig(engines=(PREFILL, DECODE, DECODE_2))
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="release", reply=REFUSED)
    rig.client.on(leg="decode", reply=empty, times=1)
    rig.client.on(leg="decode", reply=streamed("two"))
    assert b"two" in (await rig.ask(stream=True)).body
    assert rig.count("duet_retries_total", after="decode") == 1


async def test_an_opening_without_end_is_not_kept_without_end() -> None:
    """An engine that never comes to its point costs a client's connection, and no memory."""
    flood = [b": " + b"x" * 2**16 + b"\n\n"] * 6
    rig = rig_of(streamed(*flood, "one"))
    sink = await rig.ask(stream=True)
    assert b"one" in sink.body
    assert len(sink.body) > 6 * 2**16


async def test_what_an_engine_calls_its_error_is_no_label() -> None:
    rig = Rig(policies=ONCE)
    for n, code in enumerate(["made_up", "model_not_found", "x" * 1000, None, "rate_limit_exceeded"]):
        rig.client.rules.clear()
        rig.client.on(leg="prefill", reply=json_reply({"error": {"message": "no", "code": code}}, 400))
        with pytest.raises(Exception, match="no") as caught:
            await rig.ask(f"r{n}")
        rig.metrics.saw(caught.value)  # type: ignore[arg-type]
    labels = [
        sample.labels["code"]
        for family in rig.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "duet_errors_total"
    ]
    assert sorted(labels) == ["engine_refused", "model_not_found", "rate_limit_exceeded"]


async def test_a_half_open_engine_gets_one_request_at_a_time_whoever_else_ends() -> None:
    """One that was sent before the breaker opened is still streamed; its end is not the trial's."""
    rig = Rig(policies=ONCE)
    rig.client.on(leg="prefill", reply=prefilled())
    gate = asyncio.Event()
    rig.client.on(leg="decode", times=1, reply=streamed("one", gate, "two"))
    rig.client.on(leg="decode", reply=Script(before=[asyncio.Event()]))
    older = asyncio.create_task(rig.ask("older", stream=True))
    await until(lambda: len(rig.client.posts_of("decode")) == 1)
    for _ in range(3):
        rig.fleet.failed(DECODE.id, "it failed")
    rig.clock.advance(3)
    trial = asyncio.create_task(rig.ask("trial"))
    await until(lambda: len(rig.client.posts_of("decode")) == 2)
    breaker = rig.fleet.members[DECODE.id].breaker
    assert not breaker.lets_through(rig.clock.monotonic())
    gate.set()
    await older
    assert not breaker.lets_through(rig.clock.monotonic()), "the trial still runs"
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    assert breaker.lets_through(rig.clock.monotonic())


def test_the_page_has_the_table_of_deadlines() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()
    rows = [line for line in (deadlines.__doc__ or "").splitlines() if line.startswith("|")]
    assert len(rows) > 7
    assert "\n".join(rows) in page
    for row in rows[2:]:
        assert row.split("`")[1] in Settings.model_fields
