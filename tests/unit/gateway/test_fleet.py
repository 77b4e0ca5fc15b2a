"""What the gateway knows of its engines, and how it changes its mind."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from common.channel.reference import MAX_IPC_PATH
from common.connectors import DEFAULT, Connector, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError, EngineUnreachable
from gateway.fleet import Fleet
from gateway.fleet.monitor import Monitor
from gateway.store.memory import MemoryStore
from gateway.store.port import Load
from gateway.telemetry import Metrics
from tests.awaiting import until
from tests.fakes.clock import FakeClock
from tests.fakes.engine_client import FakeEngineClient
from tests.fakes.script import Script, json_reply

P = Engine.at("http://127.0.0.1:8100", Role.PREFILL)
D = Engine.at("http://127.0.0.1:8200", Role.DECODE)


def models(*cards: dict[str, Any]) -> Script:
    return json_reply({"object": "list", "data": list(cards)})


def card(name: str = "m", length: int | None = 2048) -> dict[str, Any]:
    return {"id": name, "object": "model", "max_model_len": length}


class Rig:
    def __init__(self, *engines: Engine, failures: int = 2, kv: Connector | None = None) -> None:
        self.clock = FakeClock()
        self.client = FakeEngineClient()
        self.store = MemoryStore(self.clock)
        self.fleet = Fleet(
            list(engines) or [P, D],
            client=self.client,
            store=self.store,
            clock=self.clock,
            connector=kv if kv is not None else connector(DEFAULT),
            metrics=Metrics(),
            interval=3600,
            timeout=1,
            failures=failures,
            load_interval=3600,
            breaker_failures=3,
            breaker_pause=2.0,
        )

    def well(self, engine: Engine = P, *cards: dict[str, Any]) -> None:
        self.client.on("/health", engine=engine.id, reply=Script())
        self.client.on("/v1/models", engine=engine.id, reply=models(*(cards or (card(),))))

    def monitor(self, engine: Engine = P) -> Monitor:
        return next(m for m in self.fleet._monitors.values() if m.member.engine.id == engine.id)

    async def check(self, engine: Engine = P) -> None:
        await self.monitor(engine).check()


async def test_one_good_check_takes_an_engine_in() -> None:
    rig = Rig()
    member = rig.fleet.members[P.id]
    assert (member.up, member.fault) == (False, "not checked yet")
    rig.well()
    await rig.check()
    assert (member.up, member.fault, dict(member.models)) == (True, None, {"m": 2048})
    assert member.checked_at == rig.clock.now()
    assert rig.fleet.routable(Role.PREFILL)
    assert not rig.fleet.routable(Role.DECODE)


async def test_it_takes_several_bad_ones_in_a_row_to_take_it_out() -> None:
    rig = Rig(failures=3)
    gone = EngineUnreachable("gone", engine=P.id)
    for reply, times in ((Script(), 1), (gone, 2), (Script(), 1), (gone, 3), (Script(), 1), (gone, 1), (Script(), 2)):
        rig.client.on("/health", reply=reply, times=times)
    rig.client.on("/v1/models", reply=models(card()))
    member, seen = rig.fleet.members[P.id], []
    lost = rig.fleet.lost(P.id)
    for _ in range(11):
        assert lost.is_set() is (not member.up and bool(seen))
        await rig.check()
        seen.append(member.up)
    assert seen == [True] * 6 + [False] * 4 + [True], "one good check among bad ones does not bring it back"


async def test_an_engine_that_is_out_is_looked_at_sooner_from_the_first_moment() -> None:
    """It takes two good checks to come back: at the pace of an engine that is up they could be two intervals away."""
    rig = Rig(failures=1)
    rig.client.on("/health", reply=Script(), times=1)
    rig.client.on("/health", reply=EngineUnreachable("gone", engine=P.id))
    rig.client.on("/v1/models", reply=models(card()))
    pauses = [rig.monitor().pause]
    for _ in range(3):
        await rig.check()
        pauses.append(rig.monitor().pause)
    assert pauses == [900, 3600, 900, 900]


@pytest.mark.parametrize(
    ("health", "listed", "fault"),
    [
        (Script(status=503), models(card()), "answered /health with 503"),
        (Script(), Script(status=404), "answered /v1/models with 404"),
        (Script(), json_reply({"data": []}), "serves no model"),
        (Script(), json_reply({"data": [{"no": "id"}]}), "no model list"),
        (Script(), Script([b"<html>"], 200, {}), "no model list"),
    ],
)
async def test_what_is_wrong_with_an_engine_is_told(health: Script, listed: Script, fault: str) -> None:
    rig = Rig()
    rig.client.on("/health", reply=health)
    rig.client.on("/v1/models", reply=listed)
    await rig.check()
    member = rig.fleet.members[P.id]
    assert not member.up
    assert fault in (member.fault or "")
    assert P.id in (member.fault or "")


async def test_a_model_that_cannot_be_served_now_still_exists() -> None:
    rig = Rig(failures=1)
    rig.client.on("/health", reply=Script(), times=1)
    rig.client.on("/health", reply=EngineUnreachable("gone", engine=P.id))
    rig.client.on("/v1/models", reply=models(card()))
    await rig.check()
    await rig.check()
    assert rig.fleet.models() == {"m": 2048}
    assert not rig.fleet.routable(Role.PREFILL)


async def test_a_models_longest_context_is_the_shortest_of_its_engines() -> None:
    rig = Rig()
    rig.well(P, card("m", 4096), card("only", None))
    rig.well(D, card("m", 2048))
    await rig.check(P)
    await rig.check(D)
    assert rig.fleet.models() == {"m": 2048, "only": None}


async def test_load_is_what_all_replicas_have_and_nothing_twice() -> None:
    rig = Rig()
    others = [Load(P.id, f"other-{n}", rig.clock.now() + 60) for n in range(3)]
    await rig.store.apply([], free=[])
    rig.store._loads[P.id] = {load.request_id: load.expires_at for load in others}
    rig.fleet.enter(P.id, "r1")  # ours, and not in the store yet
    await rig.fleet.look_at_load()
    member = rig.fleet.members[P.id]
    assert member.load == 3
    rig.fleet.enter(P.id, "r1")
    assert member.load == 4, "what came since the look is added"
    rig.fleet.leave(P.id, "r1")
    rig.fleet.leave(P.id, "r1")
    assert member.load == 2
    rig.store.available = False
    await rig.fleet.look_at_load()
    assert member.load == 2, "while the store is away the last look stands"


def test_an_engine_listed_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="listed twice"):
        Rig(P, P)


async def test_an_engine_that_comes_back_with_another_identity_is_known_by_it() -> None:
    """Mooncake's engine id is new after each restart, and is asked for with each check."""
    prefill = Engine.at("http://127.0.0.1:8100?bootstrap_port=8999", Role.PREFILL)
    rig = Rig(prefill, D, kv=connector("mooncake"))
    rig.well(prefill)
    for id_ in ("one", "two"):
        rig.client.on("/query", reply=json_reply({"0": {"engine_id": id_, "worker_addr": {}}}), times=1)
    rig.client.on("/query", reply=Script(status=503))
    member, seen = rig.fleet.members[prefill.id], []
    lost = []
    for _ in range(4):
        before = rig.fleet.lost(prefill.id)
        await rig.check(prefill)
        seen.append((member.up, member.engine.facts["engine_id.0"]))
        lost.append(before.is_set())
    assert lost == [True, True, False, True], "known for the first time, known anew, the same, out"
    assert seen == [(True, "one"), (True, "two"), (True, "two"), (False, "two")], "two failures take it out"
    assert {engine.url for engine, call in rig.client.calls if call.path == "/query"} == {"http://127.0.0.1:8999"}
    assert member.engine.facts["bootstrap_port"] == "8999"


async def test_the_name_that_an_engine_gives_its_kv_is_kept_with_it() -> None:
    rig = Rig()
    rig.well()
    for told in ({"engine_id": "one"}, {"engine_id": "two"}, {"engine_id": 7}, {"engine_id": None}, {}):
        rig.client.on("/duet/identity", engine=P.id, reply=json_reply(told), times=1)
    rig.client.on("/duet/identity", engine=P.id, reply=json_reply({"detail": "Not Found"}, 404))
    seen = []
    for _ in range(6):
        rig.fleet.members[P.id].up = False  # so that it is asked again
        await rig.check()
        seen.append(rig.fleet.members[P.id].engine.kv_engine)
    assert seen == ["one", "two", None, None, None, None]


async def test_a_prefill_engine_whose_identity_is_not_known_yet_is_not_up() -> None:
    rig = Rig(kv=connector("mooncake"))
    rig.well()
    rig.well(D)
    rig.client.on("/query", reply=json_reply({}))
    await rig.check(P)
    await rig.check(D)
    assert not rig.fleet.routable(Role.PREFILL)
    assert "expected an engine_id" in (rig.fleet.members[P.id].fault or "")
    assert rig.fleet.routable(Role.DECODE), "decode has no bootstrap server"


T = Engine.at("http://127.0.0.1:8300", Role.TALKER)
C = Engine.at("http://127.0.0.1:8400", Role.CODE2WAV)


def tells(rig: Rig, engine: Engine, reply: Script) -> None:
    rig.client.on("/duet/identity", engine=engine.id, reply=reply)


async def test_where_there_is_speech_engines_are_asked_where_they_tell() -> None:
    rig = Rig(P, D, T, C)
    for engine in (P, D, T, C):
        rig.well(engine)
    tells(rig, P, json_reply({"stage": "thinker", "channel": "duet+ipc:///rows"}))
    tells(rig, D, json_reply({"detail": "Not Found"}, 404))
    tells(rig, T, json_reply({"stage": "talker", "speakers": ["ethan", "chelsie"]}))
    for engine in (P, D, T, C):
        await rig.check(engine)
    members = rig.fleet.members
    assert [members[e.id].up for e in (P, D, T, C)] == [True] * 4
    assert [members[e.id].engine.channel for e in (P, D)] == ["duet+ipc:///rows", None]
    assert rig.fleet.speakers("m") == ("ethan", "chelsie")
    assert rig.fleet.speakers("other") == ()
    assert dict(rig.fleet.models()) == {"m": 2048}


@pytest.mark.parametrize("reply", [json_reply({}, 404), json_reply({"speakers": "ethan"}), Script([b"<html>"])])
async def test_a_talker_that_names_no_voices_is_not_up(reply: Script) -> None:
    rig = Rig(P, D, T, C)
    rig.well(T)
    tells(rig, T, reply)
    await rig.check(T)
    assert not rig.fleet.members[T.id].up
    assert "no speakers" in (rig.fleet.members[T.id].fault or "")


async def test_without_speech_it_does_not_matter_where_an_engine_tells_a_talker() -> None:
    rig = Rig()
    rig.well()
    tells(rig, P, json_reply({"channel": "duet+ipc:///rows", "role": "prefill"}))
    await rig.check()
    member = rig.fleet.members[P.id]
    assert (member.up, member.engine.channel, dict(member.known)["role"]) == (True, None, "prefill")


BAD_CHANNELS: list[Any] = [
    "",
    "ipc:///nowhere/rows",
    "duet+ipc://rows",
    "duet+tcp://10.0.0.7",
    "duet+tcp://10.0.0.7:" + "1" * 5000,
    "duet+ipc:///rows?request=",
    "duet+ipc:///" + "x" * 101,
    "http://[",
    7,
    ["duet+ipc:///rows"],
]


@pytest.mark.parametrize("channel", BAD_CHANNELS)
async def test_a_channel_that_is_none_costs_speech_and_not_text(channel: Any, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(P, D, T, C)
    rig.well()
    tells(rig, P, json_reply({"channel": channel}))
    member = rig.fleet.members[P.id]
    for _ in range(3):
        rig.monitor().look_anew()
        await rig.check()
        assert (member.up, member.fault, member.engine.channel) == (True, None, None)
    (line,) = [r.getMessage() for r in caplog.records if "channel" in r.getMessage()]
    assert f"engine {P.id} is heard by no Talker" in line
    assert f"tells channel {json.dumps(channel, separators=(',', ':')):.80}; " in line
    assert f"expected duet+ipc:///path, {MAX_IPC_PATH} bytes at most, or duet+tcp://host:port" in line
    assert len(line) < 500


async def test_a_channel_that_is_mended_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(P, D, T, C)
    rig.well()
    seen = []
    for channel in ("duet+ipc:///rows", "ipc:///rows", None, "ipc:///rows", "duet+ipc:///rows"):
        rig.client.on("/duet/identity", engine=P.id, reply=json_reply({"channel": channel}), times=1)
        rig.monitor().look_anew()
        await rig.check()
        seen.append(rig.fleet.members[P.id].engine.channel)
    assert seen == ["duet+ipc:///rows", None, None, None, "duet+ipc:///rows"]
    assert len([r for r in caplog.records if "tells channel" in r.getMessage()]) == 2


async def test_a_talkers_voices_are_heard_whatever_it_tells_beside_them() -> None:
    rig = Rig(P, D, T, C)
    rig.well(T)
    tells(rig, T, json_reply({"speakers": ["ethan"], "channel": 7}))
    await rig.check(T)
    assert rig.fleet.speakers("m") == ("ethan",)


async def test_without_speech_a_channel_that_is_none_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.well()
    tells(rig, P, json_reply({"channel": "ipc:///rows"}))
    await rig.check()
    assert rig.fleet.members[P.id].up
    assert not [r for r in caplog.records if r.levelname != "INFO"]


async def test_without_the_packages_of_speech_there_is_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A Talker may announce itself to a gateway that cannot use one."""
    monkeypatch.setitem(sys.modules, "common.channel.reference", None)  # as where pyzmq is not installed
    rig = Rig(P, D, T, C)
    rig.well()
    tells(rig, P, json_reply({"channel": "duet+ipc:///rows"}))
    await rig.check()
    assert (rig.fleet.members[P.id].up, rig.fleet.members[P.id].engine.channel) == (True, None)
    assert [r for r in caplog.records if "install duet[audio]" in r.getMessage()]


async def test_a_talkers_name_is_no_model() -> None:
    rig = Rig(P, D, T, C)
    rig.well(T, card("talker-only"))
    tells(rig, T, json_reply({"speakers": ["ethan"]}))
    await rig.check(T)
    assert dict(rig.fleet.models()) == {}


DEEP = Script([b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"])


async def test_a_deep_identity_is_none() -> None:
    rig = Rig()
    rig.well()
    rig.client.on("/duet/identity", engine=P.id, reply=DEEP)
    await rig.check()
    assert (rig.fleet.members[P.id].up, rig.fleet.members[P.id].identity) == (True, None)


async def test_an_answer_that_is_odd_as_nobody_foresaw_ends_no_check(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.client.on("/health", engine=P.id, reply=Script(), times=3)
    rig.client.on("/v1/models", engine=P.id, reply=DEEP, times=3)
    member = rig.fleet.members[P.id]
    for _ in range(3):
        await rig.check()
        assert not member.up
        assert "answered as nobody foresaw: RecursionError" in (member.fault or "")
    assert len([r for r in caplog.records if "nobody foresaw" in r.getMessage()]) == 1
    rig.well()
    await rig.check()
    await rig.check()
    assert member.up


async def test_an_identity_that_cannot_be_judged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.well()
    monitor = rig.monitor()

    def unjudgeable(member: object) -> str | None:
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(monitor, "_misfit", unjudgeable)
    await rig.check()
    member = rig.fleet.members[P.id]
    assert (member.up, member.refused) == (False, True)
    assert "unhashable type" in (member.fault or "")


async def test_load_that_nobody_foresaw_ends_no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.fleet._load_interval = 0.01
    looks = 0

    async def odd(engines: object) -> dict[str, int]:
        nonlocal looks
        looks += 1
        raise AttributeError("what is this")

    async def again() -> bool:
        return looks > 2

    monkeypatch.setattr(rig.store, "loads", odd)
    rig.client.on("/health", reply=Script(status=503))
    await rig.fleet.start()
    try:
        await until(again, "the load is looked at again")
    finally:
        await rig.fleet.stop()
