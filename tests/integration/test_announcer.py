"""What an engine writes into a real Redis or Valkey, and takes back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis.asyncio import Redis

from common.engine import Role
from common.errors import ConfigurationError
from common.ports import free_ports
from common.registry import Announcement, Announcer, Health, Registry, health_of
from common.registry.process import ADVERTISE, LIFE, PREFIX, URL, announce, variables
from engines.sim.engine import SimEngine
from engines.sim.runner import running
from gateway.store.redis import RedisStore
from tests.awaiting import until
from tests.redis_server import keys_under, scratch_prefix

ID = "10.0.0.1:8100"
SAID = Announcement(f"http://{ID}", Role.PREFILL, "first", 0.0, {"model": "m"})
KEPT, PATIENCE = 60.0, 20.0
"""Seconds that an entry outlives its heartbeat, and for an answer: enough of both on a busy machine."""
HASTY = 1.0
"""Seconds for an answer that does not come."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.registry.announcer.TTL", KEPT)
    monkeypatch.setattr("common.registry.announcer.WITHIN", PATIENCE)


@dataclass
class Rig:
    url: str
    prefix: str
    store: RedisStore
    health: Health = Health.WELL
    lives: list[str] = field(default_factory=lambda: ["third", "second"])

    def announcer(self, url: str | None = None) -> Announcer:
        return Announcer(url or self.url, SAID, prefix=self.prefix, health=lambda: self.health, new_life=self.lives.pop)

    async def said(self) -> Announcement | None:
        text = (await self.store.announced()).get(ID)
        return None if text is None else Announcement.of(text)


@pytest.fixture
async def rig(redis_url: str) -> AsyncIterator[Rig]:
    async with scratch_prefix(redis_url) as prefix:
        store = RedisStore.from_url(redis_url, prefix=prefix)
        yield Rig(redis_url, prefix, store)
        await store.aclose()


async def test_an_engine_is_announced_while_it_answers(rig: Rig) -> None:
    announcer = rig.announcer()
    rig.health = Health.GONE
    await asyncio.to_thread(announcer.beat)
    assert await rig.said() is None, "it was never there"
    rig.health = Health.WELL
    await asyncio.to_thread(announcer.beat)
    said = await rig.said()
    assert said is not None
    assert (said.engine.id, said.life, said.identity, said.leaving) == (ID, "first", {"model": "m"}, False)
    await asyncio.to_thread(announcer.beat)
    again = await rig.said()
    assert again == said, "a heartbeat says the same"
    rig.health = Health.SILENT
    await asyncio.to_thread(announcer.beat)
    assert await rig.said() == said, "one that is busy is not taken back"
    rig.health = Health.GONE
    await asyncio.to_thread(announcer.beat)
    gone = await rig.said()
    assert gone is not None
    assert gone.leaving
    rig.health = Health.WELL
    await asyncio.to_thread(announcer.beat)
    back = await rig.said()
    assert back is not None
    assert (back.life, back.leaving) == ("second", False), "it was started anew"
    assert back.since > said.since


async def test_what_is_written_ends_by_itself(rig: Rig) -> None:
    await asyncio.to_thread(rig.announcer().beat)
    async with Redis.from_url(rig.url, decode_responses=True) as redis:
        keys = await keys_under(redis, rig.prefix)
        names = Registry(rig.prefix)
        assert sorted(keys) == sorted([names.index, names.entry(ID)])
        assert 0 < await redis.pttl(names.entry(ID)) <= KEPT * 1000
        assert await redis.pttl(names.index) > 0
        await redis.delete(names.entry(ID))
        assert await rig.store.announced() == {ID: None}
        await redis.zadd(names.index, {"long.gone:1": 1.0})
        await asyncio.to_thread(rig.announcer().beat)
        assert await redis.zrange(names.index, 0, -1) == [ID]


async def test_while_redis_is_away_it_is_tried_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    nobody = f"redis://127.0.0.1:{free_ports(1)[0]}/0"
    announcer = rig.announcer(nobody)
    for _ in range(3):
        await asyncio.to_thread(announcer.beat)
    await asyncio.to_thread(announcer.withdraw)
    told = [r.getMessage() for r in caplog.records if "cannot be announced for now" in r.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize("url", ["http://x", "redis://:s3cret@x:port/0"])
def test_a_registry_that_is_none_is_told_without_its_password(url: str) -> None:
    for make in (lambda: Announcer(url, SAID), lambda: variables(url, "http://x:1")):
        with pytest.raises(ConfigurationError, match="registry's URL cannot be used") as told:
            make()
        assert "s3cret" not in told.value.message


async def test_how_an_engine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimEngine()
    async with running(engine) as url:
        assert await asyncio.to_thread(health_of, url) is Health.WELL
        engine.rule("hang", on="health", times=1)
        with monkeypatch.context() as hasty:
            hasty.setattr("common.registry.announcer.WITHIN", HASTY)
            assert await asyncio.to_thread(health_of, url) is Health.SILENT
        engine.dead = True
        assert await asyncio.to_thread(health_of, url) is Health.GONE
    assert await asyncio.to_thread(health_of, url) is Health.GONE


def test_a_process_that_is_told_of_no_registry_announces_nothing() -> None:
    assert announce(Role.DECODE, {}, {}) is None
    with pytest.raises(ConfigurationError, match=ADVERTISE):
        announce(Role.DECODE, {}, {URL: "redis://127.0.0.1:1/0"})


def test_all_processes_of_an_engine_are_one_life_and_each_start_another() -> None:
    first, second = (variables("redis://r:6379/0", "http://x:1", "p:") for _ in range(2))
    assert {**first, LIFE: ""} == {URL: "redis://r:6379/0", ADVERTISE: "http://x:1", PREFIX: "p:", LIFE: ""}
    assert first[LIFE] != second[LIFE]


PROGRAM = f"""
import sys
from common.engine import Role
from common.registry import announcer, process
announcer.TTL, announcer.WITHIN, process.END_WITHIN = {KEPT}, {PATIENCE}, {PATIENCE}
process.announce(Role.TALKER, {{"model": "m"}})
sys.stdin.read()
"""


async def test_a_process_takes_its_announcement_back_at_its_end(rig: Rig) -> None:
    engine = SimEngine()
    async with running(engine) as url:
        env = {**os.environ, **variables(rig.url, url, rig.prefix)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, stdin=asyncio.subprocess.PIPE, env=env
        )

        async def said() -> Announcement | None:
            texts: Any = list((await rig.store.announced()).values())
            return Announcement.of(texts[0]) if texts and texts[0] else None

        there = await until(said, "it is announced")
        assert (there.url, there.role, there.life, there.leaving) == (url, Role.TALKER, env[LIFE], False)
        await asyncio.wait_for(process.communicate(b""), 60)
        gone = await said()
        assert gone is not None
        assert gone.leaving
