"""Where engines come from: the registry, a file, names; and what becomes of what they said while they are away."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from common.connectors import DEFAULT, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.registry import EVERY, TTL, Announcement
from common.topology.document import Document, parse
from gateway.discovery import Discovery, Found, SourceAway, Static
from gateway.discovery import file as file_source
from gateway.discovery.file import ListedInFile
from gateway.discovery.names import BehindName, resolved
from gateway.discovery.registered import AFTER_LOSS, MISSED_FOR, Registered
from gateway.named import named_engines, other_sources, sources_of
from gateway.settings import Settings
from gateway.store.memory import MemoryStore
from tests.awaiting import until
from tests.fakes.clock import FakeClock

KV = connector(DEFAULT)
ONE, TWO = "10.0.0.1:8100", "10.0.0.2:8100"


def said(id_: str = ONE, **over: Any) -> str:
    return Announcement(f"http://{id_}", Role.PREFILL, over.pop("life", "a"), **{"since": 1.0, **over}).text()


class Redis:
    """The registry as a gateway reads it, and a clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.source = Registered(self.store, KV, self.clock)

    async def ids(self) -> list[str]:
        return [found.engine.id for found in await self.source.look()]


async def test_who_announced_first_comes_first() -> None:
    redis = Redis()
    redis.store.announcements = {TWO: said(TWO, since=5.0, life="b", identity={"model": "m"}), ONE: said(since=7.0)}
    found = await redis.source.look()
    assert [(f.engine.id, f.life, dict(f.identity)) for f in found] == [(TWO, "b", {"model": "m"}), (ONE, "a", {})]


async def test_one_that_says_that_it_leaves_is_gone_at_once() -> None:
    redis = Redis()
    redis.store.announcements = {ONE: said()}
    assert await redis.ids() == [ONE]
    redis.store.announcements = {ONE: said(leaving=True)}
    assert await redis.ids() == []
    redis.store.announcements = {ONE: said(life="b")}
    assert await redis.ids() == [ONE]


@pytest.mark.parametrize("ended", [{ONE: None}, {}])
async def test_one_whose_entry_ends_is_gone_a_little_later(ended: dict[str, str | None]) -> None:
    redis = Redis()
    redis.store.announcements = {ONE: said(), TWO: said(TWO)}
    await redis.ids()
    redis.store.announcements = {**ended, TWO: said(TWO)}
    assert await redis.ids() == [ONE, TWO]
    redis.clock.advance(MISSED_FOR - 0.1)
    assert await redis.ids() == [ONE, TWO]
    redis.clock.advance(0.2)
    assert await redis.ids() == [TWO]


async def test_a_gateway_that_stood_still_itself_drops_nobody() -> None:
    redis = Redis()
    redis.store.announcements = {ONE: said()}
    await redis.ids()
    redis.store.announcements = {}
    assert await redis.ids() == [ONE]
    redis.clock.advance(2 * MISSED_FOR)
    assert await redis.ids() == [ONE]
    redis.store.announcements = {ONE: said()}
    assert await redis.ids() == [ONE]


async def test_a_redis_that_was_away_and_is_empty_drops_nobody() -> None:
    """All have time to announce themselves again: longer than their own heartbeats and their own waiting take."""
    redis = Redis()
    redis.store.announcements = {ONE: said()}
    await redis.ids()
    redis.store.available = False
    with pytest.raises(SourceAway, match="did not answer"):
        await redis.source.look()
    redis.store.available, redis.store.announcements = True, {}
    assert await redis.ids() == [ONE]
    redis.clock.advance(TTL)
    assert await redis.ids() == [ONE]
    redis.clock.advance(AFTER_LOSS)
    assert await redis.ids() == []
    assert MISSED_FOR > 2 * EVERY


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", None),
        ("7", "expected a JSON object"),
        ("{}", "role is None"),
        (json.dumps({"role": "cook", "url": f"http://{ONE}"}), "role is 'cook'"),
        (json.dumps({"role": "decode"}), "url is None: expected a str"),
        (json.dumps({"role": "decode", "url": f"http://{ONE}", "since": "now"}), "since is 'now': expected a number"),
        (json.dumps({"role": "decode", "url": "ftp://x"}), "expected http://host:port"),
        (json.dumps({"role": "decode", "url": f"http://{TWO}"}), f"expected one of {ONE}"),
        (json.dumps({"role": "decode", "url": f"http://{ONE}?magic=1"}), "can be told nothing"),
    ],
)
async def test_an_announcement_that_cannot_be_used_hides_no_other(
    text: str, fault: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    redis = Redis()
    redis.store.announcements = {ONE: text, TWO: said(TWO)}
    for _ in range(3):
        assert await redis.ids() == [TWO]
    told = [record.getMessage() for record in caplog.records if ONE in record.getMessage()]
    assert len(told) == (0 if fault is None else 1), "once, however often it is seen"
    assert fault is None or fault in told[0]
    assert redis.source.complaint == (None if fault is None else told[0])
    redis.store.announcements = {ONE: said(), TWO: said(TWO)}
    assert (await redis.ids(), redis.source.complaint) == ([ONE, TWO], None)


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text(f"prefill: [http://{ONE}]\ndecode: [http://{TWO}]\n")
    source = ListedInFile(path, KV)
    before = await source.look()
    assert [(f.engine.id, f.engine.role) for f in before] == [(ONE, Role.PREFILL), (TWO, Role.DECODE)]
    assert await source.look() is before, "nothing changed, nothing is read"
    other = tmp_path / "other"
    other.write_text(json.dumps({"prefill": [f"http://{ONE}"], "decode": [f"http://{ONE}"]}))
    os.replace(other, path)
    assert await source.look() is before, "a change is looked at twice"
    assert [(f.engine.id, f.engine.role) for f in await source.look()] == [(ONE, Role.BOTH)]


async def test_half_a_file_is_not_taken_while_it_is_written(tmp_path: Path) -> None:
    """Each part of it is valid, and names an engine that there is not."""
    path = tmp_path / "engines.yaml"
    path.write_text(f"decode:\n- http://{TWO}\n")
    source = ListedInFile(path, KV)
    whole = f"decode:\n- http://{ONE}\n- http://{TWO}\n"
    for end in range(whole.index(ONE) + len(ONE) - 3, len(whole)):
        path.write_text(whole[:end])
        assert [f.engine.id for f in await source.look()] == [TWO]
    path.write_text(whole)
    await source.look()
    assert [f.engine.id for f in await source.look()] == [ONE, TWO]


async def test_a_file_that_changes_while_it_is_read_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text(f"decode:\n- http://{TWO}\n")
    source = ListedInFile(path, KV)

    def meanwhile(raw: bytes, name: str, holds: str) -> Document:
        with path.open("a") as file:
            file.write(f"- http://{TWO}\n")
        return parse(raw, name, holds)

    path.write_text(f"decode:\n- http://{ONE}\n")
    with monkeypatch.context() as patched:
        patched.setattr(file_source, "parse", meanwhile)
        for _ in range(5):
            assert [f.engine.id for f in await source.look()] == [TWO]
    await source.look()
    assert next(f.engine.id for f in await source.look()) == ONE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prefill: [", "engines.yaml, line 1: is no YAML: "),
        ("- http://x:1", "expected a mapping"),
        ("cooks: []", "line 1: cooks: is not known here; expected some of prefill, decode"),
        ("decode: http://x:1", "line 1: decode: is a str; expected a list of base URLs"),
        ("decode: [x]", "expected http://host:port"),
        ("decode: [http://x:1]\ntalkers: [http://x:1]", "is listed as decode"),
        ("decode: [http://x:1, https://x:1]", "is listed as decode"),
        pytest.param(f"decode: []  # {'x' * 2**20}", "expected 1048576 at most", id="long"),
    ],
)
async def test_a_file_with_a_fault_is_refused_and_the_last_engines_stand(
    text: str, fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=fault):
        ListedInFile(path, KV)
    path.write_text(f"decode: [http://{ONE}]")
    discovery = Discovery([ListedInFile(path, KV)], interval=3600)
    await discovery.look()
    path.write_text(text)
    for _ in range(3):
        await discovery.look()
    assert set(discovery.engines()) == {ONE}
    assert fault in (discovery.asked[0].fault or "")
    assert len([r for r in caplog.records if fault in r.getMessage()]) == 1
    path.unlink()
    await discovery.look()
    assert set(discovery.engines()) == {ONE}


async def test_a_name_is_one_engine_at_each_of_its_addresses() -> None:
    addresses: Sequence[str] = ["10.0.0.1", "fd00::1"]

    async def resolve(host: str) -> Sequence[str]:
        assert host == "decode.svc"
        if not addresses:
            raise OSError(-2, "Name or service not known")
        return addresses

    source = BehindName("dns+http://decode.svc:8200", Role.DECODE, KV, resolve)
    discovery = Discovery([source], interval=3600)
    await discovery.look()
    assert list(discovery.engines()) == ["10.0.0.1:8200", "[fd00::1]:8200"]
    assert {found.engine.role for _, found in discovery.engines().values()} == {Role.DECODE}
    addresses = ["10.0.0.2"]
    await discovery.look()
    assert list(discovery.engines()) == ["10.0.0.2:8200"]
    addresses = []
    await discovery.look()
    assert list(discovery.engines()) == ["10.0.0.2:8200"], "a name without an address is no order to stop"
    assert discovery.asked[0].fault == "decode.svc has no address now: Name or service not known"


async def test_this_machine_has_an_address() -> None:
    assert "127.0.0.1" in await resolved("localhost")


def test_what_a_url_says_beside_is_said_of_each_address() -> None:
    async def resolve(host: str) -> Sequence[str]:
        return ["10.0.0.1"]

    mooncake = connector("mooncake")
    source = BehindName("dns+http://p:8100?bootstrap_port=8998", Role.PREFILL, mooncake, resolve)
    (found,) = asyncio.run(_look(source))
    assert (found.engine.id, dict(found.engine.facts)) == ("10.0.0.1:8100", {"bootstrap_port": "8998"})
    for url in ("dns+https://p:8100", "dns+http://p", "dns+http://p:8100?colour=red"):
        with pytest.raises(ConfigurationError):
            BehindName(url, Role.PREFILL, mooncake)


async def _look(source: BehindName) -> Sequence[Found]:
    return await source.look()


async def test_an_engine_that_several_name_is_the_firsts() -> None:
    engine, other = Engine.at(f"http://{ONE}", Role.PREFILL), Engine.at(f"http://{ONE}", Role.DECODE)
    discovery = Discovery([Static([engine]), Static([other])], interval=3600)
    assert {id_: found.engine for id_, (_, found) in discovery.engines().items()} == {ONE: engine}


class Slow:
    name = "slow"
    known: Sequence[Found] = ()
    complaint = None

    def __init__(self) -> None:
        self.looks = 0
        self.away = True

    async def look(self) -> Sequence[Found]:
        self.looks += 1
        if self.away:
            raise SourceAway("not now")
        return [Found(Engine.at(f"http://{ONE}", Role.PREFILL))]


async def test_a_source_that_is_away_at_the_start_is_asked_again() -> None:
    slow = Slow()
    discovery = Discovery([slow], interval=0.01)
    await discovery.start()
    assert (discovery.engines(), discovery.asked[0].fault) == ({}, "not now")
    slow.away = False

    async def there() -> bool:
        return set(discovery.engines()) == {ONE}

    await until(there, "the source says which engines there are")
    await discovery.stop()
    looks = slow.looks
    await asyncio.sleep(0.05)
    assert slow.looks == looks


def settings(**over: Any) -> Settings:
    return Settings(_env_file=None, **over)  # type: ignore[call-arg]


def test_settings_name_sources(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text("{}")
    chosen = settings(
        registry=True, engines_file=str(path), prefill="dns+http://p:8100 http://q:1", code2wavs="dns+http://c:8400"
    )
    engines, wrong = named_engines(chosen, KV)
    assert ([e.id for e in engines], wrong) == (["q:1"], [])
    clock = FakeClock()
    names = [source.name for source in sources_of(chosen, engines, MemoryStore(clock), KV, clock)]
    assert names == [
        "settings", "registry", "file", "prefill dns+http://p:8100", "code2wav dns+http://c:8400",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="cannot be read"):
        other_sources(settings(engines_file=str(tmp_path / "none")), KV)


def test_without_discovery_a_role_without_engine_is_wrong() -> None:
    assert len(named_engines(settings(), KV)[1]) == 2
    assert named_engines(settings(registry=True), KV)[1] == []
