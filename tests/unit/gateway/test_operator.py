"""What operators do to a fleet, over fakes: joins, leaves, orders of other replicas, and what the feed is told."""

from __future__ import annotations

from typing import Any

import pytest

from common.connectors import DEFAULT, connector
from common.engine import Engine, Role
from common.errors import BadRequest, ConfigurationError, Conflict, EngineNotFound, EngineUnreachable, StoreUnavailable
from gateway.discovery import Discovery, Static
from gateway.discovery.registered import Registered
from gateway.fleet import Fleet, Looker, Operator, Reporter
from gateway.fleet.gauges import FRESH
from gateway.store.memory import MemoryStore
from gateway.store.port import Order, Orders
from tests.awaiting import until
from tests.fakes.script import Script, json_reply
from tests.unit.gateway.test_fleet import D, P
from tests.unit.gateway.test_fleet import Rig as FleetRig

NEW = "http://127.0.0.1:8300"
NEW_ID = "127.0.0.1:8300"
METRICS = b"""# HELP vllm:kv_cache_usage_perc x
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 3.0
vllm:num_requests_waiting{engine="0"} NaN
vllm:num_requests_waiting{engine="1"} nonsense
"""


class Rig(FleetRig):
    def __init__(self, *engines: Engine) -> None:
        super().__init__(*engines)
        self.looker = Looker(self.client, self.clock)
        self.discovery = Discovery([Static(engines or (P, D)), self.registry()], interval=3600)
        self.operator = self.another(self.fleet)

    def registry(self) -> Registered:
        return Registered(self.store, connector(DEFAULT), self.clock)

    def another(self, fleet: Any) -> Operator:
        return Operator(
            fleet,
            self.discovery,
            store=self.store,
            connector=connector(DEFAULT),
            looker=self.looker,
            clock=self.clock,
            replica="replica-1",
            interval=3600,
        )

    def says(self, id_: str, **identity: Any) -> None:
        self.client.on("/duet/identity", engine=id_, reply=json_reply(identity) if identity else Script(status=404))
        self.client.on("/metrics", engine=id_, reply=Script([METRICS]))

    async def told(self) -> list[str]:
        return [row.fields["event"] for row in await self.store.feed(100)]


async def test_an_order_of_another_replica_is_carried_out_at_the_next_look() -> None:
    rig = Rig()
    await rig.store.give_order(P.id, {Order.DRAIN: "1"})
    await rig.store.give_order(D.id, {Order.REMOVE: "1"})
    await rig.store.give_order(NEW_ID, {Order.ADD: f'{{"url": "{NEW}", "role": "decode"}}'})
    await rig.operator.look()
    assert set(rig.fleet.members) == {P.id, NEW_ID}
    assert rig.fleet.members[P.id].draining
    await rig.store.give_order(P.id, {}, drop=[Order.DRAIN])
    await rig.store.give_order(D.id, {}, drop=[Order.REMOVE])
    await rig.store.give_order(NEW_ID, {}, drop=[Order.ADD])
    await rig.operator.look()
    assert set(rig.fleet.members) == {P.id, D.id}
    assert not rig.fleet.members[P.id].draining


ODD = {
    "nothing": "",
    "number": "7",
    "empty": "{}",
    "scheme": '{"url": "ftp://x", "role": "decode"}',
    "no-role": '{"url": "http://x:1"}',
    "url-number": '{"url": 5, "role": "decode"}',
    "role-list": '{"url": "http://odd:1", "role": []}',
    "role": '{"url": "http://odd:1", "role": "cook"}',
    "deep": "[" * 100_000,
    "digits": f'{{"url": {"9" * 5000}, "role": "decode"}}',
    "host": '{"url": "http://a..b:1", "role": "decode"}',
    "half-a-pair": '{"url": "http://odd:1/\\ud800", "role": "decode"}',
    "another": '{"url": "http://127.0.0.1:8300", "role": "decode"}',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_an_order_that_cannot_be_read_hides_no_other(text: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.store.give_order("odd:1", {Order.ADD: text})
    await rig.store.give_order(P.id, {Order.DRAIN: "1"})
    for _ in range(3):
        await rig.operator.look()
        assert set(rig.fleet.members) == {P.id, D.id}
    assert rig.fleet.members[P.id].draining
    assert len([r for r in caplog.records if "odd:1" in r.getMessage()]) == 1, "once, however often it is seen"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"block_size": NaN}', '{"model": "\\ud800"}', "7"])
async def test_what_is_declared_and_cannot_be_read_is_nothing(text: str) -> None:
    rig = Rig()
    await rig.store.give_order(P.id, {Order.DECLARE: text})
    await rig.operator.look()
    assert rig.fleet.members[P.id].declared == {}


class Unforeseen(MemoryStore):
    """Fails as nobody foresaw at its first looks."""

    looks = 0

    async def orders(self) -> Orders | None:
        self.looks += 1
        if self.looks < 4:
            raise AttributeError("what is this")
        return await super().orders()


async def test_a_look_that_fails_unforeseen_stops_no_start_and_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    store = Unforeseen(rig.clock)
    await store.give_order(P.id, {Order.DRAIN: "1"})
    operator = Operator(
        rig.fleet, rig.discovery, store=store, connector=connector(DEFAULT), looker=rig.looker, clock=rig.clock,
        replica="replica-1", interval=0.01,
    )  # fmt: skip

    async def drained() -> bool:
        return rig.fleet.members[P.id].draining

    await operator.start()
    try:
        await until(drained, "the order is carried out")
    finally:
        await operator.stop()
    assert caplog.text.count("a look at operators' orders failed by a fault of the gateway") == 1


async def test_an_engine_that_left_is_in_no_metric() -> None:
    """Engines that come and go under new names must not gather there."""
    rig = Rig()
    for _ in range(9):
        rig.fleet.failed(D.id, "it failed")
    await rig.fleet.look_at_load()
    metrics = rig.fleet._metrics
    assert D.id.encode() in metrics.exposition()
    await rig.operator.remove(D.id)
    assert D.id.encode() not in metrics.exposition()
    assert P.id.encode() in metrics.exposition()


async def test_an_engine_that_works_leaves_when_it_is_done() -> None:
    rig = Rig()
    rig.fleet.enter(D.id, "r1")
    rig.fleet.enter(D.id, "r1")
    await rig.operator.remove(D.id)
    assert rig.fleet.members[D.id].leaving
    assert not rig.fleet.routable(Role.DECODE)
    with pytest.raises(EngineNotFound, match="is not of the fleet"):
        await rig.operator.drain(D.id)
    rig.fleet.leave(D.id, "r1")
    assert D.id in rig.fleet.members
    rig.fleet.leave(D.id, "r1")
    assert D.id not in rig.fleet.members
    rig.fleet.succeeded(D.id)
    rig.fleet.failed(D.id, "late")
    assert not rig.fleet.is_up(D.id)
    await rig.fleet.look_at_load()


async def test_an_engine_that_is_added_back_while_it_leaves_stays() -> None:
    rig = Rig()
    rig.says(D.id)
    rig.says(P.id)
    rig.fleet.enter(D.id, "r1")
    member = rig.fleet.members[D.id]
    await rig.operator.remove(D.id)
    assert await rig.operator.add(D.url, Role.DECODE) is member
    assert not member.leaving
    rig.fleet.leave(D.id, "r1")
    assert rig.fleet.members[D.id] is member
    assert await rig.told() == ["engine_removed", "engine_added"]


async def test_a_newcomer_that_does_not_fit_is_refused_and_nothing_changes() -> None:
    rig = Rig()
    rig.says(P.id, model="m", block_size=16)
    rig.says(D.id)
    rig.says(NEW_ID, model="m", block_size=32, role="decode")
    rig.fleet.members[P.id].up = True
    rig.fleet.members[P.id].identity = {"model": "m", "block_size": 16}
    with pytest.raises(Conflict, match=f"block_size differs: prefill {P.id} has 16, decode {NEW_ID} has 32"):
        await rig.operator.add(NEW, Role.DECODE)
    with pytest.raises(Conflict, match="model: declared as 'x', but by its own word it is 'm'"):
        await rig.operator.add(NEW, Role.DECODE, {"model": "x"})
    with pytest.raises(Conflict, match="is there as prefill engine"):
        await rig.operator.add(P.url, Role.DECODE)
    with pytest.raises(BadRequest, match="expected http://host:port"):
        await rig.operator.add("nonsense", Role.DECODE)
    assert set(rig.fleet.members) == {P.id, D.id}
    assert await rig.store.orders() is None
    assert await rig.told() == []


async def test_an_engine_that_is_not_up_yet_may_be_added() -> None:
    rig = Rig()
    rig.client.on("/duet/identity", engine=NEW_ID, reply=EngineUnreachable("no", engine=NEW_ID))
    member = await rig.operator.add(NEW, Role.DECODE)
    assert (member.up, member.fault) == (False, "not checked yet")


async def test_while_the_store_is_away_the_last_orders_stand() -> None:
    rig = Rig()
    await rig.operator.drain(P.id)
    rig.store.available = False
    with pytest.raises(StoreUnavailable):
        await rig.operator.undrain(P.id)
    await rig.operator.start()
    await rig.operator.stop()
    assert rig.fleet.members[P.id].draining


def others_fleet() -> Fleet:
    """Another replica's."""
    return Rig().fleet


def emptied(rig: Rig) -> None:
    rig.store._orders = None


async def test_a_store_that_comes_back_empty_is_told_the_orders_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.operator.drain(P.id)
    await rig.operator.remove(D.id)
    emptied(rig)
    await rig.operator.look()
    await rig.operator.look()
    assert await rig.store.orders() == {P.id: {Order.DRAIN: "1"}, D.id: {Order.REMOVE: "1"}}
    assert rig.fleet.members[P.id].draining
    assert D.id not in rig.fleet.members
    assert caplog.text.count("lost operators' orders") == 1
    late = rig.another(fleet := others_fleet())
    await late.look()
    assert fleet.members[P.id].draining, "one that starts later knows it, too"


async def test_a_new_order_for_an_emptied_store_does_not_hide_those_before_it() -> None:
    rig = Rig()
    await rig.operator.drain(P.id)
    emptied(rig)
    await rig.operator.drain(D.id)
    assert await rig.store.orders() == {P.id: {Order.DRAIN: "1"}, D.id: {Order.DRAIN: "1"}}


@pytest.mark.parametrize("empties", ["before", "after", "between"])
async def test_what_was_taken_back_stays_so_whoever_finds_the_store_empty(empties: str) -> None:
    """The other replica still knows the order that was taken back at this one."""
    rig = Rig()
    other = rig.another(fleet := others_fleet())
    await rig.operator.drain(P.id)
    await other.look()
    assert fleet.members[P.id].draining
    if empties == "before":
        emptied(rig)
    await rig.operator.undrain(P.id)
    if empties == "between":
        await other.look()
    if empties != "before":
        emptied(rig)
    await rig.operator.look()
    await other.look()
    await rig.operator.look()
    assert await rig.store.orders() == {}
    assert not fleet.members[P.id].draining
    assert not rig.fleet.members[P.id].draining


async def test_the_order_of_an_engine_that_is_away_can_be_taken_back() -> None:
    rig = Rig()
    await rig.store.give_order(NEW_ID, {Order.DRAIN: "1"})  # by another replica, and not seen here yet
    assert await rig.operator.undrain(NEW_ID) is None
    assert await rig.store.orders() == {}
    assert await rig.told() == ["engine_undrained"]
    with pytest.raises(EngineNotFound, match="is not of the fleet"):
        await rig.operator.undrain(NEW_ID)


async def test_an_order_to_add_that_cannot_be_carried_out_can_be_taken_back() -> None:
    rig = Rig()
    await rig.store.give_order("odd:1", {Order.ADD: '{"url": "ftp://x", "role": "decode"}'})
    await rig.operator.remove("odd:1")
    assert await rig.store.orders() == {}
    with pytest.raises(EngineNotFound, match="is not of the fleet"):
        await rig.operator.remove("odd:1")


async def test_an_engine_that_leaves_by_its_source_can_be_undrained_meanwhile() -> None:
    rig = Rig()
    await rig.operator.drain(D.id)
    rig.fleet.enter(D.id, "r1")
    rig.fleet.dismiss(D.id)
    await rig.operator.undrain(D.id)
    assert await rig.store.orders() == {}


def test_an_engine_does_not_join_twice() -> None:
    rig = Rig()
    with pytest.raises(ConfigurationError, match="listed twice"):
        rig.fleet.join(P)


async def test_what_engines_tell_is_asked_once_a_second_and_only_of_those_that_are_up() -> None:
    rig = Rig()
    rig.says(P.id, model="m")
    rig.fleet.members[P.id].up = True
    seen = await rig.looker.look(rig.fleet.members.values())
    gauges = seen[P.id]
    assert (gauges.kv_usage, gauges.running, gauges.waiting) == (0.5, 5, None)
    assert seen[D.id].kv_usage is None
    await rig.looker.look([rig.fleet.members[D.id]])
    await rig.looker.look(rig.fleet.members.values())
    assert [call.path for _, call in rig.client.calls].count("/metrics") == 1
    rig.clock.advance(FRESH)
    await rig.looker.look(rig.fleet.members.values())
    assert [call.path for _, call in rig.client.calls].count("/metrics") == 2


async def test_a_code2wav_tells_how_many_it_speaks_for() -> None:
    rig = Rig(P, D)
    told = Script([b"duet_code2wav_running 3.0\nduet_code2wav_running_created 1.7e9\n"])
    rig.client.on("/metrics", engine=P.id, reply=told)
    rig.fleet.members[P.id].up = True
    (seen, _) = (await rig.looker.look(rig.fleet.members.values())).values()
    assert (seen.kv_usage, seen.running, seen.waiting) == (None, 3, None)


async def test_an_engine_that_tells_nothing_of_itself_is_shown_all_the_same() -> None:
    rig = Rig()
    rig.client.on("/metrics", engine=P.id, reply=EngineUnreachable("gone", engine=P.id))
    rig.client.on("/metrics", engine=D.id, reply=Script([b"<html>"]))
    for member in rig.fleet.members.values():
        member.up = True
    for gauges in (await rig.looker.look(rig.fleet.members.values())).values():
        assert (gauges.kv_usage, gauges.running) == (None, None)


async def test_the_feed_is_told_each_change_once() -> None:
    rig = Rig()
    reporter = Reporter(rig.fleet, store=rig.store, clock=rig.clock, replica="replica-1", interval=3600)
    member = rig.fleet.members[P.id]
    await reporter.look()
    assert await rig.told() == [], "nobody knows yet"
    for one in rig.fleet.members.values():
        one.checked_at, one.fault = rig.clock.now(), None
    await reporter.look()
    await reporter.look()
    assert await rig.told() == ["engine_down", "engine_down"], "one for each engine"
    member.up, member.fault = True, None
    await reporter.look()
    for _ in range(3):
        rig.fleet.failed(P.id, "no")
    await reporter.look()
    rig.clock.advance(60)
    rig.fleet.enter(P.id, "r1")
    rig.fleet.succeeded(P.id)
    await reporter.look()
    assert (await rig.told())[2:] == ["engine_up", "breaker_open", "breaker_closed"]
    rig.store.available = False
    member.up = False
    with pytest.raises(StoreUnavailable):
        await reporter.look()
    rig.store.available = True
    await reporter.look()
    (row,) = await rig.store.feed(1)
    assert row.fields == {"event": "engine_down", "engine": P.id, "replica": "replica-1"}


async def test_telling_that_fails_unforeseen_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    tell, tries = rig.store.tell, 0

    async def odd(at: float, fields: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise AttributeError("what is this")
        await tell(at, fields)

    async def told() -> bool:
        return len(await rig.told()) == 2

    monkeypatch.setattr(rig.store, "tell", odd)
    for one in rig.fleet.members.values():
        one.checked_at = rig.clock.now()
    reporter = Reporter(rig.fleet, store=rig.store, clock=rig.clock, replica="replica-1", interval=0.01)
    await reporter.start()
    try:
        await until(told, "both engines are told of")
    finally:
        await reporter.stop()
