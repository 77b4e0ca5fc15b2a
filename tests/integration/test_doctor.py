"""`duet doctor` against simulated engines and a real Valkey: each thing that can be wrong, one at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from cli.doctor.ask import PROBE_TEXT
from cli.doctor.examine import examine
from cli.doctor.finding import Check, Finding, Severity
from common.engine import Role
from common.ports import free_ports
from common.registry import Announcement, Announcer
from common.valkey import EmbeddedValkey
from engines.sim.engine import SimEngine
from engines.sim.runner import running
from engines.sim.words import encode
from gateway.settings import Settings
from tests.fakes.stages import FakeCode2Wav, FakeTalker, code2wav_server, talker_server

PROBE = encode(PROBE_TEXT)
PATIENCE, HASTY = 60.0, 4.0
"""Seconds for an answer: so many that a busy machine does not miss them, or fewer because one does not come."""
OURS = frozenset(check for check in Check if not check.startswith(("machine.", "installation.")))
"""What these tests decide; the rest depends on where they run."""


class Bench:
    """Engines to examine. `prefill` and `decode` may be changed before `look`, which starts them."""

    def __init__(self, redis_url: str) -> None:
        self.prefill, self.decode = SimEngine(), SimEngine()
        self.redis_url: str | None = redis_url
        self._stack = AsyncExitStack()

    async def look(self, *, within: float = PATIENCE, probe: bool = True, **settings: Any) -> list[Finding]:
        async with self._stack as stack:
            urls = [await stack.enter_async_context(running(e)) for e in (self.prefill, self.decode)]
            return await self.look_at((urls[0],), (urls[1],), within=within, probe=probe, **settings)

    async def look_at(
        self,
        prefill: tuple[str, ...],
        decode: tuple[str, ...],
        *,
        within: float = PATIENCE,
        probe: bool = True,
        **more: Any,
    ) -> list[Finding]:
        chosen = Settings(
            _env_file=None,  # type: ignore[call-arg]
            **{"prefill": prefill, "decode": decode, "redis_url": self.redis_url, **more},
        )
        found = await examine(chosen, within=within, probe=probe)
        return [f for f in found if f.check in OURS]


@pytest.fixture
def bench(valkey: EmbeddedValkey) -> Bench:
    return Bench(valkey.url)


@pytest.fixture(scope="module")
def valkey() -> Any:
    with EmbeddedValkey() as it:
        yield it


@pytest.fixture
async def admin(valkey: EmbeddedValkey) -> AsyncIterator[Redis]:
    """The Valkey's own face; what a test configures is put back."""
    async with Redis.from_url(valkey.url, decode_responses=True) as client:
        before = {name: (await client.config_get(name))[name] for name in ("maxmemory-policy", "save", "appendonly")}
        yield client
        for name, value in before.items():
            await client.config_set(name, value)


def bad(findings: list[Finding]) -> list[Finding]:
    """All that is not ok, but what is so here in any case: the embedded Valkey saves nothing, and is slow on a busy
    machine."""
    passed_over = (Check.REDIS_PERSISTENCE, Check.REDIS_LATENCY)
    return [f for f in findings if f.severity is not Severity.OK and f.check not in passed_over]


def only(findings: list[Finding], check: Check, severity: Severity = Severity.FAULT) -> Finding:
    """The one finding that is not ok; it says why, and what to do."""
    (found,) = bad(findings)
    assert (found.check, found.severity) == (check, severity)
    assert found.why
    assert found.do
    return found


def good(findings: list[Finding], check: Check) -> list[str]:
    return [f.what for f in findings if f.check is check and f.severity is Severity.OK]


async def test_a_good_pair_has_no_fault_and_its_kv_was_moved(bench: Bench) -> None:
    findings = await bench.look()
    assert bad(findings) == []
    assert good(findings, Check.PREFILL) == ["prefill handed over as NixlConnector does"]
    assert good(findings, Check.TRANSFER) == ["decode loaded the prompt's KV from prefill"]
    assert bench.prefill.kv.held == {}
    assert (bench.prefill.kv.fetched, bench.decode.sources["local_compute"]) == (1, len(PROBE))
    assert [call.leg for call in bench.prefill.calls] == ["unsplit", "prefill"]
    assert [call.leg for call in bench.decode.calls] == ["unsplit", "decode"]


async def test_without_a_probe_nothing_is_handed_over(bench: Bench) -> None:
    findings = await bench.look(probe=False)
    assert bad(findings) == []
    assert good(findings, Check.PAIR_MATCH)
    assert [call.leg for call in bench.prefill.calls + bench.decode.calls] == ["unsplit", "unsplit"]


@asynccontextmanager
async def spoken(**talker: Any) -> AsyncIterator[dict[str, Any]]:
    """Settings that name a Talker and a Code2Wav."""
    async with talker_server(FakeTalker(**talker)) as speaks, code2wav_server(FakeCode2Wav()) as sounds:
        yield {"talkers": (speaks.url,), "code2wavs": (sounds.url,)}


async def test_engines_that_can_speak(bench: Bench) -> None:
    bench.prefill, bench.decode = SimEngine(channel="duet+ipc:///rows"), SimEngine(channel="duet+ipc:///rows")
    async with spoken() as named:
        findings = await bench.look(**named)
    assert bad(findings) == []
    assert good(findings, Check.SPEECH_ENGINE) == ["answers, for sim, voices ethan, chelsie", "answers, for sim"]
    assert good(findings, Check.SPEECH) == ["sim can be spoken"]


async def test_thinkers_that_tell_no_talker_what_they_compute(bench: Bench) -> None:
    async with spoken() as named:
        findings = await bench.look(**named)
    assert [f.check for f in bad(findings)] == [Check.SPEECH_CHANNEL] * 2


async def test_a_talker_that_tells_no_voices(bench: Bench) -> None:
    async with spoken(speakers=()) as named:
        findings = await bench.look(**named)
    assert [f.check for f in bad(findings)] == [Check.SPEECH_IDENTITY, Check.SPEECH]


async def test_one_sort_of_what_speaks_without_the_other(bench: Bench) -> None:
    found = only(await bench.look(talkers=("http://127.0.0.1:9",)), Check.ENGINES)
    assert "no code2wav engine" in found.what


async def test_engines_that_speak_and_are_found_are_looked_at(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    async with spoken() as named:
        path.write_text(json.dumps(named))
        findings = await bench.look(engines_file=str(path))
    assert [f.check for f in bad(findings)] == [Check.SPEECH_CHANNEL] * 2
    assert len(good(findings, Check.SPEECH_ENGINE)) == 2


async def test_an_engine_that_is_down(bench: Bench) -> None:
    (port,) = free_ports(1)
    async with running(bench.prefill) as prefill:
        findings = await bench.look_at((prefill,), (f"http://127.0.0.1:{port}",))
    down, pairless = bad(findings)
    assert (down.check, down.severity, down.about) == (Check.ENGINE, Severity.FAULT, f"decode 127.0.0.1:{port}")
    assert f"engine 127.0.0.1:{port} cannot be reached" in down.what
    assert (pairless.check, pairless.severity) == (Check.PAIRS, Severity.FAULT)
    assert "no decode engine answers" in pairless.what
    assert "what it holds for one prompt lives until its lease ends, 30 s" in good(findings, Check.PREFILL)[0]


async def test_an_engine_that_is_unwell(bench: Bench) -> None:
    bench.decode.rule("status", on="health", status=503)
    down, pairless = bad(await bench.look())
    assert "answered /health with 503; expected 200" in down.what
    assert pairless.check is Check.PAIRS


async def test_an_engine_that_hangs(bench: Bench) -> None:
    bench.decode.rule("hang", on="health")
    down, _ = bad(await bench.look(within=HASTY))
    assert f"did not answer /health within {HASTY:g} s" in down.what


async def test_prefill_without_the_connector(bench: Bench) -> None:
    bench.prefill.splits = False
    found = only(await bench.look(), Check.PREFILL)
    assert "prefill returned kv_transfer_params null; expected NIXL routing metadata" in found.what
    assert "NixlConnector" in found.do


async def test_decode_without_the_connector(bench: Bench) -> None:
    bench.decode.splits = False
    found = only(await bench.look(), Check.TRANSFER)
    assert found.what == "decode computed the whole prompt again: no KV came from prefill"
    assert "NixlConnector" in found.do


async def test_decode_that_cannot_load(bench: Bench) -> None:
    bench.decode.rule("status", on="decode", status=500, message="no way to the other side")
    found = only(await bench.look(), Check.TRANSFER)
    assert found.what == "decode answered 500: no way to the other side"


async def test_decode_that_hangs_on_a_handoff(bench: Bench) -> None:
    bench.decode.rule("hang", on="decode")
    found = only(await bench.look(within=HASTY), Check.TRANSFER)
    assert f"did not answer /v1/completions within {HASTY:g} s" in found.what


async def test_two_models(bench: Bench) -> None:
    bench.prefill.model, bench.decode.model, bench.decode.rotated = "a", "b", 7
    findings = await bench.look()
    found = only(findings, Check.PAIR_MATCH)
    here, there = f"127.0.0.1:{bench.prefill.port}", f"127.0.0.1:{bench.decode.port}"
    assert found.what == f"model differs: prefill {here} has 'a', decode {there} has 'b'"
    assert found.about == f"{here} -> {there}"
    (released,) = good(findings, Check.PREFILL)
    assert f"a decode that {there} refused gave it back" in released
    assert (bench.prefill.kv.held, bench.prefill.kv.released) == ({}, 1)


async def test_two_lengths(bench: Bench) -> None:
    bench.decode.max_model_len = 2048
    assert "max_model_len differs" in only(await bench.look(), Check.PAIR_MATCH).what


async def test_two_tokenizers(bench: Bench) -> None:
    bench.decode.rotated = 1
    findings = await bench.look()
    found = only(findings, Check.PAIR_TOKENIZER)
    count = len(PROBE)
    assert found.what == (
        f"tokenizer differs: the same text is {count} tokens on prefill and {count} on decode, which part at token 0"
    )
    assert bench.prefill.kv.held == {}
    assert [call.status for call in bench.decode.calls] == [200, 400], "no handoff of another prompt was taken"


async def test_an_engine_without_details(bench: Bench) -> None:
    bench.decode.details = False
    found = only(await bench.look(), Check.ENGINE_DETAILS, Severity.WARNING)
    assert found.about == f"decode 127.0.0.1:{bench.decode.port}"
    assert "--enable-prompt-tokens-details" in found.do


async def test_an_engine_that_generates_nothing(bench: Bench) -> None:
    bench.decode.rule("status", on="unsplit", status=500, message="EngineCore is gone")
    findings = await bench.look()
    found = only(findings, Check.ENGINE_PROMPT)
    assert found.what == "a completion of one token was refused: 500: EngineCore is gone"
    assert not good(findings, Check.TRANSFER)


async def test_the_engines_key(bench: Bench) -> None:
    bench.prefill.api_key = bench.decode.api_key = "secret"
    assert bad(await bench.look(engine_api_key="secret")) == []


async def test_a_wrong_key(bench: Bench) -> None:
    bench.decode.api_key = "secret"
    down, _ = bad(await bench.look(engine_api_key="other"))
    assert "answered /v1/models with 401; expected 200; is --engine-api-key" in down.what


async def test_redis_is_unreachable(bench: Bench) -> None:
    (port,) = free_ports(1)
    bench.redis_url = f"redis://somebody:hush@127.0.0.1:{port}/0"
    found = only(await bench.look(), Check.REDIS)
    assert found.about == f"127.0.0.1:{port}/0"
    assert "the store did not answer" in found.what
    assert "hush" not in str(found)


async def test_redis_evicts(bench: Bench, admin: Redis) -> None:
    await admin.config_set("maxmemory-policy", "allkeys-lru")
    found = only(await bench.look(), Check.REDIS_EVICTION)
    assert "maxmemory-policy allkeys-lru" in found.what


async def test_what_redis_says_of_itself(bench: Bench, admin: Redis) -> None:
    await admin.config_set("save", "3600 1")
    findings = await bench.look()
    assert good(findings, Check.REDIS) == ["answers"]
    assert good(findings, Check.REDIS_VERSION)[0].startswith("Valkey ")
    assert good(findings, Check.REDIS_EVICTION) == ["maxmemory-policy noeviction"]
    assert good(findings, Check.REDIS_PERSISTENCE) == ["snapshots (3600 1): a crash loses what came since"]
    (latency,) = [f.what for f in findings if f.check is Check.REDIS_LATENCY]
    assert latency.endswith(" ms a round trip")


async def test_several_faults_are_all_told(bench: Bench, admin: Redis) -> None:
    await admin.config_set("maxmemory-policy", "volatile-ttl")
    bench.prefill.splits = bench.decode.details = False
    checks = [f.check for f in bad(await bench.look(connector="NixlConnector"))]
    assert checks == [Check.REDIS_EVICTION, Check.ENGINE_DETAILS, Check.PREFILL]


async def test_settings_that_a_gateway_refuses_hide_nothing(bench: Bench) -> None:
    async with running(bench.prefill) as prefill:
        findings = await bench.look_at((prefill, "ftp://nowhere"), (), connector="pigeon")
    kv, url, role, pairless = bad(findings)
    assert (kv.check, url.check, role.check) == (Check.CONNECTOR, Check.ENGINES, Check.ENGINES)
    assert "connector 'pigeon' is not known" in kv.what
    assert "prefill engine URL 'ftp://nowhere'" in url.what
    assert role.what == "no decode engine: expected --decode URL or DUET_DECODE"
    assert pairless.check is Check.PAIRS
    assert good(findings, Check.ENGINE) == ["answers"]


async def test_every_engine_is_in_a_trial_once(bench: Bench) -> None:
    more = [SimEngine() for _ in range(2)]
    async with AsyncExitStack() as stack:
        p1, d1, d2, d3 = [await stack.enter_async_context(running(e)) for e in (bench.prefill, bench.decode, *more)]
        findings = await bench.look_at((p1,), (d1, d2, d3))
    assert bad(findings) == []
    assert len(good(findings, Check.TRANSFER)) == 3
    for decode in (bench.decode, *more):
        assert [call.leg for call in decode.calls] == ["unsplit", "decode"]


async def test_engines_of_two_models_behind_one_gateway_are_no_fault(bench: Bench) -> None:
    b = [SimEngine(model="b", rotated=3) for _ in range(2)]
    async with AsyncExitStack() as stack:
        p1, d1, p2, d2 = [await stack.enter_async_context(running(e)) for e in (bench.prefill, bench.decode, *b)]
        findings = await bench.look_at((p1, p2), (d1, d2))
    assert bad(findings) == []
    assert len(good(findings, Check.TRANSFER)) == 2


async def test_what_the_connector_must_look_up(bench: Bench) -> None:
    (port,) = free_ports(1)
    async with running(bench.prefill) as prefill, running(bench.decode) as decode:
        findings = await bench.look_at((f"{prefill}?bootstrap_port={port}",), (decode,), connector="mooncake")
    found = only(findings, Check.ENGINE_LOOKUP)
    assert f"127.0.0.1:{port}" in found.what
    assert [call.leg for call in bench.prefill.calls] == ["unsplit"], "nothing is parked that could not be named"


async def test_engines_that_are_found_are_looked_at_like_those_that_are_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.registry.announcer.TTL", PATIENCE)
    monkeypatch.setattr("common.registry.announcer.WITHIN", PATIENCE)
    path = tmp_path / "engines.yaml"
    async with AsyncExitStack() as stack:
        prefill, decode = [await stack.enter_async_context(running(e)) for e in (bench.prefill, bench.decode)]
        path.write_text(json.dumps({"decode": [decode]}))
        announced = Announcement(prefill, Role.PREFILL, "a", 0.0)
        assert bench.redis_url is not None
        await asyncio.to_thread(Announcer(bench.redis_url, announced, prefix="found:").beat)
        more = {"registry": True, "redis_prefix": "found:", "engines_file": str(path)}
        found = await bench.look_at((), (), **more)
        assert [f.what for f in found if f.severity is Severity.FAULT] == []
        assert any(f.check is Check.TRANSFER for f in found)
        path.write_text("decode: [")
        (wrong,) = [f for f in await bench.look_at((), (), **more) if f.check is Check.ENGINES and "file" in f.what]
        assert (wrong.severity, wrong.why) == (Severity.FAULT, "the gateway refuses to start")
