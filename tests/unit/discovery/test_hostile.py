"""What somebody else wrote and nobody can use: it is refused in words, alone, and ends neither a look nor a start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from common.connectors import DEFAULT, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.registry import Announcement
from common.registry.announcement import MOST
from gateway.discovery import Discovery, Found, Static
from gateway.discovery.file import ListedInFile
from gateway.discovery.names import BehindName
from gateway.discovery.registered import Registered
from gateway.store.memory import MemoryStore
from gateway.store.port import Unreadable
from tests.awaiting import until
from tests.fakes.clock import FakeClock

KV = connector(DEFAULT)
ONE, TWO = "10.0.0.1:8100", "10.0.0.2:8100"
GOOD = Announcement(f"http://{TWO}", Role.DECODE, "a", 1.0).text()
SECRET = "pw-SECRET"


def announced(**over: Any) -> str:
    return json.dumps({"url": f"http://{ONE}", "role": "decode", **over})


ODD = {
    "role-list": (announced(role=[]), r"role is \[\]"),
    "role-mapping": (announced(role={}), "role is {}"),
    "since-400-digits": (announced(since=10**400), "since is 1000"),
    "since-5000-digits": (announced().replace("}", f', "since": {"9" * 5000}}}'), "expected a JSON object"),
    "since-nan": (announced(since=float("nan")), "finite numbers"),
    "since-infinite": (announced().replace("}", ', "since": 1e999}'), "finite numbers"),
    "since-true": (announced(since=True), "since is True"),
    "since-null": (announced(since=None), "since is None"),
    "identity-nan": (announced(identity={"block_size": float("nan")}), "finite numbers"),
    "identity-null": (announced(identity=None), "identity is None: expected a dict"),
    "leaving-1": (announced(leaving=1), "leaving is 1: expected a bool"),
    "half-a-pair": (announced(life="\ud800"), "plain text"),
    "deep": ("[" * (MOST - 1), "nested too deep"),
    "deep-inside": (announced().replace("}", f', "identity": {"[" * 30_000}'), "nested too deep"),
    "deep-and-closed": ("[" * 20_000 + "]" * 20_000, "nested too deep"),
    "long": (announced(life="x" * MOST), f"expected {MOST} at most"),
    "bytes": (b"\xff\xfe{}".decode(errors="backslashreplace"), "expected a JSON object"),
    "url-number": (announced(url=5), "url is 5: expected a str"),
    "url-host": (announced(url="http://a..b:1"), "host's name"),
    "url-label": (announced(url=f"http://{'a' * 70}:1"), "host's name"),
    "url-port": (announced(url="http://x:99999"), "its port"),
}


@pytest.mark.parametrize(("text", "fault"), ODD.values(), ids=ODD)
async def test_an_odd_announcement_is_refused_alone(text: str, fault: str) -> None:
    store = MemoryStore(FakeClock())
    source = Registered(store, KV, FakeClock())
    store.announcements = {ONE: text, TWO: GOOD}
    assert [found.engine.id for found in await source.look()] == [TWO]
    with pytest.raises(ConfigurationError, match=fault) as refused:
        _ = Announcement.of(text).engine
    assert len(refused.value.message) < 500
    assert source.complaint is not None
    assert source.complaint.startswith(f"the announcement of engine {ONE} is refused: ")
    assert refused.value.message in source.complaint


@pytest.mark.parametrize("port", ["9" * 5000, "", "-1", "٣", "8998.0"])
async def test_what_a_connector_is_told_is_judged_alone(port: str) -> None:
    store = MemoryStore(FakeClock())
    source = Registered(store, connector("mooncake"), FakeClock())
    store.announcements = {ONE: announced(role="prefill", url=f"http://{ONE}?bootstrap_port={port}"), TWO: GOOD}
    assert [found.engine.id for found in await source.look()] == [TWO]
    assert "bootstrap_port" in (source.complaint or "")


async def test_a_key_of_another_type_is_complained_of_alone() -> None:
    store = MemoryStore(FakeClock())
    source = Registered(store, KV, FakeClock())
    store.announcements = {ONE: Unreadable("WRONGTYPE"), TWO: GOOD}
    assert [found.engine.id for found in await source.look()] == [TWO]
    assert source.complaint == f"the announcement of engine {ONE} is refused: WRONGTYPE"


class Broken:
    """A source that fails as nobody foresaw, until it is mended."""

    name = "broken"
    known: Sequence[Found] = ()
    complaint = None

    def __init__(self) -> None:
        self.mended = False
        self.looks = 0

    async def look(self) -> Sequence[Found]:
        self.looks += 1
        if not self.mended:
            raise AttributeError("what is this")
        return [Found(Engine.at(f"http://{ONE}", Role.PREFILL))]


async def test_a_source_that_fails_unforeseen_stops_no_start_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, other = Broken(), Static([Engine.at(f"http://{TWO}", Role.DECODE)])
    discovery = Discovery([broken, other], interval=0.01)
    await discovery.start()

    async def asked_again() -> bool:
        return broken.looks > 3

    async def there() -> bool:
        return ONE in discovery.engines()

    try:
        await until(asked_again, "the source is asked again")
        assert set(discovery.engines()) == {TWO}
        fault = discovery.asked[0].fault or ""
        assert fault.startswith("broken cannot be asked")
        assert "AttributeError: what is this" in fault
        assert len([r for r in caplog.records if "what is this" in r.getMessage()]) == 1
        broken.mended = True
        await until(there, "the source says which engines there are")
        assert discovery.asked[0].fault is None
    finally:
        await discovery.stop()


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 70, f"x.{'b' * 64}.c"])
def test_a_name_that_no_resolver_takes_is_none(host: str) -> None:
    with pytest.raises(ConfigurationError, match="host's name"):
        BehindName(f"dns+http://{host}:8100", Role.PREFILL, KV)
    with pytest.raises(ConfigurationError, match="host's name"):
        Engine.at(f"http://{host}:8100", Role.PREFILL)


async def test_a_name_that_a_resolver_refuses_to_write_has_no_address() -> None:
    async def resolve(host: str) -> Sequence[str]:
        raise UnicodeError("label too long")

    discovery = Discovery([BehindName("dns+http://p:8100", Role.PREFILL, KV, resolve)], interval=3600)
    await discovery.look()
    assert discovery.asked[0].fault == "p has no address now: label too long"


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{SECRET}@x:1",
        f"http://u:{SECRET}/w@x:1",
        f"ftp://u:{SECRET}@x:1",
        f"http:u:{SECRET}@x:1",
        f"http://u:[{SECRET}@x:1",
        f"http://u:\u2100{SECRET}@x:1",
    ],
)
def test_a_password_in_a_url_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Engine.at(url, Role.DECODE)
    assert SECRET not in refused.value.message


FILES = {
    "tag-empty": ('a: !!int ""', "line 1: a: what stands here is no int"),
    "tag-bool": (f"a: !!bool {SECRET}", "line 1: a: what stands here is no bool"),
    "tag-own": (f"decode: !go {SECRET}", "line 1: decode: "),
    "twice": ("decode: []\ndecode: []", "line 2: decode: the key stands here twice"),
    "empty": ("", "is empty; expected a mapping with prefill, decode, talkers, code2wavs"),
    "text": (SECRET, "line 1: is a str; expected a mapping with prefill"),
    "other-file": (f"decode: []\npassword: {SECRET}", "line 2: password: is not known here"),
    "other-files": (f"host: x\npassword: {SECRET}", "line 1: host: is not known here"),
    "near": (f"prefil: [{SECRET}]", "expected some of .*; did you mean prefill"),
    "no-list": (f"decode: {{password: {SECRET}}}", "line 1: decode: is a mapping; expected a list"),
    "no-text": (f"decode:\n- password: {SECRET}", r"line 2: decode\[0\]: is a mapping; expected a base URL"),
    "number": ("decode:\n- http://x:1\n- 7", r"line 3: decode\[1\]: is a int; expected a base URL"),
    "url": ("prefill:\n- http://x:1\n-\n  ftp://x", r"prefill\[1\]: prefill engine URL 'ftp://x': expected http"),
    "url-secret": (f"prefill:\n- http://u:{SECRET}@x:1", r"line 2: prefill\[0\]: .*'…@x:1'"),
    "half-a-pair": ('prefill: ["http://x:1/\\ud800"]', r"line 1: prefill\[0\]: "),
    "other": ("decode: [http://x:1]\ntalkers:\n- http://x:1", r"line 3: talkers\[0\]: engine x:1 is listed as decode"),
    "deep": ("[" * 100_000, "nested too deep"),
    "no-text-at-all": ("\x00", "is no YAML"),
}


@pytest.mark.parametrize(("text", "fault"), FILES.values(), ids=FILES)
async def test_a_file_is_refused_by_its_place_and_without_its_values(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text(f"decode: [http://{ONE}]")
    discovery = Discovery([ListedInFile(path, KV)], interval=3600)
    path.write_text(text)
    for _ in range(2):
        await discovery.look()
    assert set(discovery.engines()) == {ONE}
    with pytest.raises(ConfigurationError, match=fault) as refused:
        ListedInFile(path, KV)
    assert refused.value.message.startswith(f"engines file {path}")
    assert SECRET not in refused.value.message
    assert discovery.asked[0].fault == refused.value.message


def test_a_file_that_lists_nothing_of_a_role_is_one(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text("decode:\nprefill: []\n")
    assert ListedInFile(path, KV).known == []
