"""Engines that come by themselves: they join, are refused where they do not fit, and leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from common.engine import Engine, Role
from common.registry import Announcement
from gateway.fleet import Reporter
from gateway.store.port import Order
from tests.fakes.engine_client import Rule
from tests.fakes.script import Script, json_reply
from tests.unit.gateway.test_fleet import D, P
from tests.unit.gateway.test_operator import NEW, NEW_ID
from tests.unit.gateway.test_operator import Rig as OperatorRig

THINKER = {"stage": "thinker", "model": "m", "block_size": 16, "tensor_parallel_size": 1}


class Rig(OperatorRig):
    """Prefill and decode are up and tell who they are; who announces itself is `announced`."""

    def announced(self, role: Role = Role.DECODE, life: str = "a", **over: Any) -> None:
        self.store.announcements = {NEW_ID: Announcement(NEW, role, life, 1.0, **over).text()}

    def tells(self, id_: str, **identity: Any) -> None:
        rules = self.client.rules
        rules[:] = [rule for rule in rules if (rule.path, rule.engine) != ("/duet/identity", id_)]
        self.client.on("/duet/identity", engine=id_, reply=json_reply({**THINKER, **identity}))

    async def begin(self) -> None:
        for engine, role in ((P, "prefill"), (D, "decode"), (Engine.at(NEW, Role.DECODE), "decode")):
            self.well(engine)
            self.tells(engine.id, role=role)
        self.client.on("/metrics", reply=Script(status=404))
        await self.check(P)
        await self.check(D)

    async def look(self) -> None:
        await self.discovery.look()
        await self.operator.look()

    async def refused(self) -> float:
        found = self.fleet._metrics.registry.get_sample_value("duet_engines_refused_total", {"engine": NEW_ID})
        return found or 0.0


async def test_one_that_announces_itself_joins_and_leaves() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced()
    await rig.look()
    member = rig.fleet.members[NEW_ID]
    assert (member.up, member.source, member.stranger) == (False, "registry", True)
    await rig.check(member.engine)
    assert (member.up, member.refused, member.fault) == (True, False, None)
    rig.announced(leaving=True)
    await rig.look()
    assert set(rig.fleet.members) == {P.id, D.id}


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"block_size": 32}, f"block_size differs: prefill {P.id} has 16, decode {NEW_ID} has 32"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size differs"),
        ({"model": "another"}, f"model differs: decode {NEW_ID} has 'another'"),
        ({"role": "prefill"}, "role: it says that it is 'prefill'"),
    ],
)
async def test_one_that_does_not_fit_is_refused_and_the_others_go_on(
    identity: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    await rig.begin()
    rig.tells(NEW_ID, **identity)
    rig.announced()
    await rig.look()
    member = rig.fleet.members[NEW_ID]
    for _ in range(3):
        await rig.check(member.engine)
        assert (member.up, member.refused) == (False, True)
    assert said in (member.fault or "")
    assert await rig.refused() == 1, "once, however often it is found so"
    assert len([r for r in caplog.records if "is refused" in r.getMessage()]) == 1
    assert rig.fleet.members[D.id].up
    reporter = Reporter(rig.fleet, store=rig.store, clock=rig.clock, replica="r", interval=3600)
    await reporter.look()
    assert (await rig.told())[-1] == "engine_refused"
    rig.tells(NEW_ID, role="decode")
    for _ in range(2):
        await rig.check(member.engine)
    assert (member.up, member.refused, member.fault) == (True, False, None), "it was mended"


async def test_what_is_declared_of_a_stock_engine_is_held_against_the_others() -> None:
    rig = Rig()
    await rig.begin()
    rig.client.rules[:] = [r for r in rig.client.rules if (r.path, r.engine) != ("/duet/identity", NEW_ID)]
    rig.announced(identity={"model": "m", "block_size": 8})
    await rig.look()
    await rig.check(rig.fleet.members[NEW_ID].engine)
    assert "block_size differs" in (rig.fleet.members[NEW_ID].fault or "")


async def test_what_is_declared_must_be_what_the_engine_says() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced(identity={"block_size": 8})
    await rig.look()
    await rig.check(rig.fleet.members[NEW_ID].engine)
    assert rig.fleet.members[NEW_ID].fault == "block_size: declared as 8, but by its own word it is 16"


async def test_one_that_is_started_anew_is_another_at_the_next_check() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced()
    await rig.look()
    member = rig.fleet.members[NEW_ID]
    await rig.check(member.engine)
    lost = rig.fleet.lost(NEW_ID)
    await rig.look()
    assert not lost.is_set()
    rig.tells(NEW_ID, block_size=32)
    await rig.check(member.engine)
    assert member.up, "its identity is not asked with each check"
    rig.announced(life="b")
    await rig.look()
    assert lost.is_set(), "what it held is gone"
    await rig.check(member.engine)
    assert (member.up, member.refused) == (False, True)


async def test_a_side_car_that_is_started_anew_changes_nothing_for_what_runs() -> None:
    rig = Rig()
    await rig.begin()
    for lives in (("", "a", ""), ("", "", "")):
        lost = None
        for life in lives:
            rig.announced(life=life)
            await rig.look()
            lost = lost or rig.fleet.lost(NEW_ID)
        assert lost is not None
        assert not lost.is_set()


async def test_one_that_comes_back_for_another_leg_joins_anew() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced()
    await rig.look()
    rig.fleet.enter(NEW_ID, "r")
    rig.announced(Role.PREFILL, life="b")
    await rig.look()
    assert rig.fleet.members[NEW_ID].leaving, "something still runs on what it was"
    rig.fleet.leave(NEW_ID, "r")
    await rig.look()
    member = rig.fleet.members[NEW_ID]
    assert (member.engine.role, member.leaving) == (Role.PREFILL, False)


async def test_an_operators_word_stands_over_the_registrys() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced()
    await rig.look()
    await rig.operator.remove(NEW_ID)
    await rig.look()
    assert NEW_ID not in rig.fleet.members, "though it still announces itself"
    await rig.operator.add(NEW, Role.DECODE)
    assert not rig.fleet.members[NEW_ID].stranger, "an operator named it"
    await rig.operator.drain(NEW_ID)
    rig.announced(life="b")
    await rig.look()
    assert rig.fleet.members[NEW_ID].draining
    assert await rig.store.orders() == {NEW_ID: {Order.ADD: f'{{"url": "{NEW}", "role": "decode"}}', Order.DRAIN: "1"}}


async def test_what_an_operator_declared_is_held_against_those_that_come_later() -> None:
    rig = Rig()
    await rig.begin()
    rig.client.rules[:] = [rule for rule in rig.client.rules if rule.path != "/duet/identity"]
    rig.fleet.members[P.id].identity = rig.fleet.members[D.id].identity = None
    await rig.operator.add(NEW, Role.PREFILL, {"model": "m", "block_size": 8})
    await rig.check(rig.fleet.members[NEW_ID].engine)
    assert rig.fleet.members[NEW_ID].up
    rig.tells(D.id)
    rig.fleet.renew(D.id)
    await rig.check(D)
    said = f"block_size differs: prefill {NEW_ID} has 8, decode {D.id} has 16"
    assert said in (rig.fleet.members[D.id].fault or "")


async def test_an_engine_that_is_started_anew_during_a_check_is_asked_at_the_next() -> None:
    rig = Rig()
    await rig.begin()
    during, monitor = asyncio.Event(), rig.monitor(D)
    rig.client.rules.insert(0, Rule("/health", None, D.id, Script(before=[during]), 1))
    check = asyncio.create_task(monitor.check())
    await asyncio.sleep(0)
    rig.tells(D.id, block_size=32)
    rig.fleet.renew(D.id)
    during.set()
    await check
    await monitor.check()
    assert rig.fleet.members[D.id].refused


async def test_of_two_that_do_not_fit_each_other_the_one_that_was_named_first_stays() -> None:
    rig = Rig()
    for engine, size in ((D, 32), (P, 16)):
        rig.well(engine)
        rig.tells(engine.id, block_size=size)
    await rig.fleet.start()
    await rig.fleet.stop()
    assert [(m.up, m.refused) for m in (rig.fleet.members[P.id], rig.fleet.members[D.id])] == [
        (True, False),
        (False, True),
    ]


async def test_while_the_store_is_away_everybody_stays() -> None:
    rig = Rig()
    await rig.begin()
    rig.announced()
    await rig.look()
    rig.store.available = False
    await rig.discovery.look()
    await rig.operator.start()
    await rig.operator.stop()
    assert set(rig.fleet.members) == {P.id, D.id, NEW_ID}
    assert not any(m.leaving for m in rig.fleet.members.values())


async def test_the_feed_is_told_that_an_engine_has_left() -> None:
    rig = Rig()
    await rig.begin()
    reporter = Reporter(rig.fleet, store=rig.store, clock=rig.clock, replica="r", interval=3600)
    await reporter.look()
    await rig.operator.remove(D.id)
    await reporter.look()
    await reporter.look()
    assert await rig.told() == ["engine_up", "engine_up", "engine_removed", "engine_left"]
