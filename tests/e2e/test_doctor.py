"""`duet doctor` against real vLLM: a pair that is well, and an engine without a connector on either side of one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cli.doctor.examine import examine
from cli.doctor.finding import Check, Finding, Severity
from gateway.settings import Settings
from tests.real_engines import RealEngine, RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

WITHIN = 60.0
"""Seconds: the two engines may have to meet first, on a busy machine."""


async def looked_at(prefill: RealEngine, decode: RealEngine, redis_url: str) -> list[Finding]:
    """What is said of the engines."""
    chosen = Settings(
        _env_file=None,  # type: ignore[call-arg]
        prefill=(prefill.told,),
        decode=(decode.told,),
        redis_url=redis_url,  # type: ignore[arg-type]
    )
    findings = await examine(chosen, within=WITHIN, probe=True)
    return [f for f in findings if f.check.startswith(("engine.", "pair.", "prefill."))]


def bad(findings: Sequence[Finding]) -> list[tuple[Check, Severity]]:
    return [(f.check, f.severity) for f in findings if f.severity is not Severity.OK]


async def test_a_pair_that_is_well(real_engines: RealEngines, redis_url: str) -> None:
    for _ in range(2):  # again: what the first look left in the prefix caches changes nothing
        findings = await looked_at(real_engines.prefill, real_engines.decode, redis_url)
        assert bad(findings) == []
        assert [f.what for f in findings if f.check is Check.TRANSFER] == ["decode loaded the prompt's KV from prefill"]


async def test_prefill_without_a_connector(real_engines: RealEngines, redis_url: str) -> None:
    findings = await looked_at(real_engines.unsplit, real_engines.decode, redis_url)
    assert bad(findings) == [(Check.PREFILL, Severity.FAULT)]


async def test_decode_without_a_connector(real_engines: RealEngines, redis_url: str) -> None:
    findings = await looked_at(real_engines.prefill, real_engines.unsplit, redis_url)
    assert bad(findings) == [(Check.TRANSFER, Severity.FAULT)]
