"""Mooncake on real vLLM, for a process in a network namespace of its own: `test_mooncake.py` runs this there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from common.connectors.base import Handoff, HandoffContext, Lookup, Params
from common.connectors.mooncake import MooncakeConnector
from common.engine import Engine, Role
from common.valkey import EmbeddedValkey
from tests.awaiting import until
from tests.e2e.checking import SALTS, check_split_equals_unsplit, dropping
from tests.e2e.conftest import Real, gateway_over
from tests.e2e.prompts import asks
from tests.processes import WITHIN, descendants, kill, wait_for_end
from tests.real_engines import RealEngine, RealEngines, launch, spec_of, wait_for

if TYPE_CHECKING:
    from engines.thinker import EngineSpec

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

NAME = MooncakeConnector.name
WORKERS = 4
KNOWN_WITHIN = 30.0
"""Seconds from a new engine's first answer until a request goes by its new id; every one does from then on."""
PATIENCE = 15.0
"""Seconds that the gateway waits for decode's first bytes. Where prefill dies between its reply and the transfer, vLLM
waits for its lease and a minute more, and this is what ends the request."""
HANGS = 2.5 * PATIENCE
"""Seconds that no request may take, whatever becomes of it."""


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """By a socket in a directory: nothing that stands outside can be reached from here."""
    with EmbeddedValkey() as valkey:
        yield valkey.url


@dataclass
class Pair:
    """The engines, and the means to kill prefill and start it again on the same ports."""

    engines: RealEngines
    stack: ExitStack
    spec: EngineSpec
    logs: Path

    def kill_prefill(self) -> None:
        child = self.engines.prefill.child
        below = descendants(child.pid)
        kill(below)
        wait_for_end(below)
        child.wait(WITHIN)

    def start_prefill(self) -> RealEngine:
        prefill = launch(self.stack, self.spec, self.logs / "prefill-again.log")
        self.engines = replace(self.engines, prefill=prefill)
        return prefill


@pytest.fixture(scope="module")
def pair(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    logs = tmp_path_factory.mktemp("mooncake")
    with ExitStack() as stack:
        spec = spec_of(tiny_model, Role.PREFILL, NAME)
        prefill = launch(stack, spec, logs / "prefill.log")
        decode = launch(stack, spec_of(tiny_model, Role.DECODE, NAME), logs / "decode.log")
        unsplit = launch(stack, spec_of(tiny_model, Role.BOTH, None), logs / "unsplit.log")
        wait_for(prefill, decode, unsplit)
        pair = Pair(RealEngines("tiny", prefill, decode, unsplit), stack, spec, logs)
        yield pair
        for engine in (pair.engines.prefill, decode, unsplit):
            engine.child.ask_to_stop()


async def test_split_and_unsplit_answers_are_equal_and_all_kv_came_from_prefill(pair: Pair, redis_url: str) -> None:
    async with gateway_over(pair.engines, redis_url, connector=NAME) as real:
        await check_split_equals_unsplit(real, asks(next(SALTS)))


async def test_the_check_above_fails_when_handoffs_are_dropped(pair: Pair, redis_url: str) -> None:
    async with gateway_over(pair.engines, redis_url, kv=dropping(NAME)) as real:
        with pytest.raises(AssertionError, match="local_compute"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[:4])


class Unasked(MooncakeConnector):
    """Never asks the bootstrap server."""

    def lookup(self, prefill: Engine) -> Lookup | None:
        return None


async def test_without_the_query_a_request_is_refused_and_says_why(pair: Pair, redis_url: str) -> None:
    """Not run without KV: that would be an answer that looks well."""
    async with gateway_over(pair.engines, redis_url, kv=Unasked()) as real:
        before = await real.sources()
        with pytest.raises(AssertionError, match=r"is not known; expected one from .*/query"):
            await check_split_equals_unsplit(real, asks(next(SALTS))[4:5])
        assert await real.sources() == before


@dataclass(frozen=True)
class Asked:
    """One request of the load: when it was sent and answered (monotonic seconds), and what was answered where that is
    not as it should be."""

    sent: float
    answered: float
    fault: str

    @property
    def well(self) -> bool:
        return not self.fault


@dataclass
class Load:
    """What WORKERS clients do at the same time, one request after the other."""

    real: Real
    asked: list[Asked] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self, number: int) -> None:
        rng = random.Random(f"{next(SALTS)} {number}")
        while True:
            asked = await self._ask([rng.randrange(3, 1000) for _ in range(rng.randrange(40, 400))])
            self.asked.append(asked)
            self._news.set()
            await asyncio.sleep(0.05 if asked.well else 0.5)  # who is refused waits, as clients do

    async def _ask(self, prompt: list[int]) -> Asked:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "stream": True}
        sent = time.monotonic()
        reply = await self.real.client.post("/v1/completions", json=body)
        well = reply.status_code == 200 and '"error"' not in reply.text and reply.text.endswith("data: [DONE]\n\n")
        return Asked(sent, time.monotonic(), "" if well else f"{reply.status_code} {reply.text[-400:]}")

    async def until_well(self, count: int, *, since: float, within: float) -> None:
        """Returns once so many requests that were sent after `since` were answered well."""
        async with asyncio.timeout(within):
            while sum(a.well for a in self.asked if a.sent > since) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def load_on(real: Real) -> AsyncIterator[Load]:
    """Leaving waits for what was asked."""
    load = Load(real)
    workers = [asyncio.create_task(load.work(n)) for n in range(WORKERS)]
    try:
        yield load
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def engine_id(pair: Pair) -> str:
    """As the bootstrap server tells it."""
    asked = MooncakeConnector().lookup(Engine.at(pair.engines.prefill.told, Role.PREFILL))
    async with httpx.AsyncClient(timeout=60) as client:
        told = (await client.get(f"{asked.base}{asked.path}")).json()
    return str(told["0"]["engine_id"])


class Watched(MooncakeConnector):
    """Keeps which engine id each decode was sent to, and when (monotonic seconds)."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, str]] = []

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params:
        self.sent.append((time.monotonic(), handoff.params["remote_engine_id"]))
        return super().decode_params(ctx, handoff)

    async def until_sent_to(self, id_: str) -> float:
        """When the first decode was sent to it (monotonic seconds)."""

        async def first() -> float | None:
            return next((at for at, sent_to in self.sent if sent_to == id_), None)

        return await until(first, f"a decode is sent to {id_}")


async def until_prefill_is_up(real: Real) -> None:
    """As the gateway sees it."""

    async def up() -> bool:
        engines = (await real.client.get("/admin/topology")).json()["engines"]
        return all(engine["up"] for engine in engines if engine["role"] == Role.PREFILL.value)

    await until(up, "prefill is up again", every=0.05)


async def test_prefill_killed_under_load_is_known_by_its_new_id_when_it_comes_back(pair: Pair, redis_url: str) -> None:
    kv = Watched()
    patience = {"first_token_timeout": PATIENCE, "idle_timeout": PATIENCE}
    async with gateway_over(pair.engines, redis_url, kv=kv, **patience) as real:
        old = await engine_id(pair)
        async with load_on(real) as load:
            await load.until_well(20, since=0.0, within=60)
            killed = time.monotonic()
            pair.kill_prefill()
            prefill = pair.start_prefill()
            await asyncio.to_thread(wait_for, prefill)
            ready = time.monotonic()
            new = await engine_id(pair)
            await until_prefill_is_up(real)
            known = await kv.until_sent_to(new)
            await load.until_well(20, since=known, within=60)
        assert new != old
        assert known - ready < KNOWN_WITHIN
        assert {id_ for at, id_ in kv.sent if at < killed} == {old}
        assert {id_ for at, id_ in kv.sent if at >= known} == {new}
        assert [a for a in load.asked if a.sent > known and not a.well] == [], f"known at {known:.2f}"
        longest = max(a.answered - a.sent for a in load.asked)
        print(
            f"\n{len(load.asked)} requests, {sum(not a.well for a in load.asked)} not well, longest {longest:.2f} s; "
            f"prefill was away for {ready - killed:.1f} s, its new id was used after another "
            f"{known - ready:.2f} s"
        )
        assert longest < HANGS
