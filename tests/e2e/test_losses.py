"""A prefill engine of its own that loses what it prefilled: by the end of a real lease, and by kill -9."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from common.connectors import DEFAULT, Connector, connector
from common.connectors.base import Handoff, HandoffContext, PrefillReply
from common.engine import Role
from tests.e2e.checking import SALTS, comparable
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.held import finished, gauge, soon, usage_of
from tests.processes import WITHIN, descendants, kill, wait_for_end
from tests.real_engines import RealEngine, RealEngines, launch, meet, spec_of, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

SHORT_LEASE = 6.0
"""Seconds."""
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"


@pytest.fixture(scope="module")
def doomed(
    real_engines: RealEngines, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngine]:
    """A prefill engine with a short lease, beside the engines of the whole run. The last test here kills it."""
    spec = replace(spec_of(tiny_model, Role.PREFILL, DEFAULT), lease=SHORT_LEASE)
    with ExitStack() as stack:
        engine = launch(stack, spec, tmp_path_factory.mktemp("doomed") / "prefill.log")
        wait_for(engine)
        meet(engine, real_engines.decode)
        yield engine


def between_the_calls(happens: Callable[[], None]) -> Connector:
    """The usual connector, and what happens once, between the first prefill's reply and decode's call."""
    left = [happens]

    class Between(type(connector(DEFAULT))):  # type: ignore[misc]
        def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
            made: Handoff = super().handoff(ctx, reply)
            if left:
                left.pop()()
            return made

    return Between(lease=SHORT_LEASE)


def kill_9(engine: RealEngine) -> None:
    """All of its processes, the API server and the engine core, and waits for their end."""
    pids = descendants(engine.child.pid)
    kill(pids)
    wait_for_end(pids)


async def check_right_on_the_second_attempt(real: Real) -> None:
    body = {"model": "tiny", "prompt": f"prompt {next(SALTS)} that was lost", "max_tokens": 12, "temperature": 0}
    split = await real.client.post("/v1/completions", json=body)
    whole = await real.whole.post("/v1/completions", json=body)
    assert split.status_code == 200, split.text
    assert comparable(split.json()) == comparable(whole.json())
    record = await finished(real, split)
    assert record["attempt"] == 2
    assert record["unsplit"] is None
    assert [e["event"] for e in record["events"]].count("prefill_done") == 2
    assert real.engines.decode.child.running, real.engines.decode.log()[-2000:]


async def test_a_lease_that_ran_out_on_the_engine_means_a_new_prefill(
    real_engines: RealEngines, doomed: RealEngine, redis_url: str
) -> None:
    kv = between_the_calls(lambda: time.sleep(SHORT_LEASE + 1.0))  # the whole gateway stands still
    before = await gauge(doomed.url, EXPIRED)
    async with gateway_over(replace(real_engines, prefill=doomed), redis_url, kv=kv) as real:
        await check_right_on_the_second_attempt(real)

        async def expired() -> bool:
            await usage_of(doomed.url)  # it looks for such blocks when it computes
            return await gauge(doomed.url, EXPIRED) >= before + 1

        await soon(expired, "the engine freed a request's blocks by itself")


async def test_kill_9_of_prefill_between_the_calls_means_another_prefill(
    real_engines: RealEngines, doomed: RealEngine, redis_url: str
) -> None:
    told = (doomed.told, real_engines.prefill.told)  # equals take turns, the first one first
    kv = between_the_calls(lambda: kill_9(doomed))
    async with gateway_over(real_engines, redis_url, kv=kv, prefill=told) as real:
        await check_right_on_the_second_attempt(real)
        await asyncio.to_thread(doomed.child.wait, WITHIN)
        reply = await real.client.post("/v1/completions", json={"model": "tiny", "prompt": "after it", "max_tokens": 3})
        assert reply.status_code == 200, reply.text
