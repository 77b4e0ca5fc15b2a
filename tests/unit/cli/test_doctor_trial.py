"""Trials over a scripted engine: legs that leave at once, and what is said when one fails. Legs in turn are tried on
simulated and on real engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cli.doctor.ask import Asker
from cli.doctor.finding import Check, Severity
from cli.doctor.pair import Pair
from cli.doctor.trial import Trials
from common.connectors import connector
from common.engine import Engine, Role
from common.errors import EngineTimeout
from common.ids import RandomIds
from tests.fakes.clock import FakeClock
from tests.unit.cli.doctoring import bad, seen, whole

ANSWER = (200, b'{"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 4}}')
REFUSAL = (500, b'{"error": {"message": "EngineCore is gone"}}')


class Hasty(FakeClock):
    """A second goes by whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


class Scripted(Asker):
    """Answers by the engine's name; `loads` is what a decode adds to its counter, None if it has none."""

    def __init__(self, answers: Mapping[str, Any], loads: int | None) -> None:
        self._answers = answers
        self._loads = loads
        self._loaded = 100
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def post(
        self, engine: Engine, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        self.asked.append((engine.id, json.loads(body)))
        answer = self._answers[engine.id]
        if isinstance(answer, Exception):
            raise answer
        if engine.id == "d:1":
            self._loaded += self._loads or 0
        status, reply = answer
        return status, reply

    async def get(self, engine: Engine, path: str) -> tuple[int, bytes]:
        if self._loads is None:
            return 404, b""
        other = 'vllm:prompt_tokens_by_source_total{source="local_compute"} 9.0\n'
        name = 'vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"}'
        return 200, f"{other}{name} {self._loaded}.0\n".encode()


async def tried(
    answers: Mapping[str, Any], *, loads: int | None = 4, known: bool = True, kv: str = "mooncake"
) -> tuple[list[Any], Scripted]:
    prefill = seen("p", Role.PREFILL)
    if known:
        prefill = replace(prefill, engine=replace(prefill.engine, facts={"engine_id.0": "e-1"}))
    ask = Scripted({"p:1": ANSWER, "d:1": ANSWER, **answers}, loads)
    trials = Trials(ask, connector(kv), Hasty(), RandomIds())
    return whole(await trials.split(Pair(prefill, seen("d", Role.DECODE)))), ask


async def test_both_legs_leave_with_one_transfer_and_one_prompt() -> None:
    findings, ask = await tried({})
    assert bad(findings) == []
    assert [f.what for f in findings] == ["decode loaded the prompt's KV from prefill"]
    legs = dict(ask.asked)
    assert legs["p:1"]["prompt"] == legs["d:1"]["prompt"]
    assert legs["p:1"]["kv_transfer_params"]["transfer_id"] == legs["d:1"]["kv_transfer_params"]["transfer_id"]


async def test_a_decode_that_computes_again() -> None:
    findings, _ = await tried({}, loads=0)
    assert bad(findings) == [(Check.TRANSFER, Severity.FAULT)]


async def test_a_decode_that_does_not_count_is_not_accused() -> None:
    findings, _ = await tried({}, loads=None)
    assert [f.what for f in findings] == ["decode answered; it does not tell where the KV came from"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (REFUSAL, "prefill engine p:1 answered 500: EngineCore is gone"),
        ((500, b"oops"), "prefill engine p:1 answered 500: oops"),
        (EngineTimeout("engine p:1 did not answer", engine="p:1"), "engine p:1 did not answer"),
        ((200, b'{"choices": []}'), "prefill engine p:1 answered with no choice; expected one"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kv", ["mooncake", "nixl", "example"])
async def test_a_prefill_that_fails(failure: Any, said: str, kv: str) -> None:
    findings, _ = await tried({"p:1": failure}, kv=kv)
    assert bad(findings) == [(Check.PREFILL, Severity.FAULT)]
    assert findings[0].what == said


async def test_nothing_leaves_without_what_a_handoff_must_name() -> None:
    findings, ask = await tried({}, known=False)
    assert bad(findings) == [(Check.PREFILL, Severity.FAULT)]
    assert "the engine id of p:1 is not known" in findings[0].what
    assert ask.asked == []


async def test_a_connector_that_hands_nothing_over_is_told_by_decode_alone() -> None:
    findings, ask = await tried({}, kv="example")
    assert [f.check for f in findings] == [Check.TRANSFER]
    assert [engine for engine, _ in ask.asked] == ["p:1", "d:1"]
    assert all("kv_transfer_params" not in body for _, body in ask.asked)


@pytest.mark.parametrize("kv", ["mooncake", "example"])
async def test_alone_such_a_prefill_is_not_asked(kv: str) -> None:
    ask = Scripted({}, None)
    trials = Trials(ask, connector(kv), Hasty(), RandomIds())
    assert await trials.alone(seen("p", Role.PREFILL), seen("d", Role.DECODE)) == []
    assert ask.asked == []
