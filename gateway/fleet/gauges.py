"""What engines tell of themselves when somebody looks: how full they are.

Nothing of it is asked for while nobody looks, and at most every FRESH seconds however many do.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from common.clock import Clock
from common.engine import Engine
from common.errors import EngineError
from gateway.fleet.identity import IDENTITY, told_by
from gateway.fleet.member import Member
from gateway.transport.port import EngineClient

METRICS = "/metrics"
FRESH = 1.0
"""Seconds for which what was seen stands."""
WITHIN = 1.0
"""Seconds that an engine has to answer: whoever looks at all of them does not wait for one."""

USAGE, RUNNING, WAITING = "vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"
SPOKEN = "duet_code2wav_running"
"""A Code2Wav's."""
_SERIES = re.compile(
    rf"^({'|'.join((USAGE, RUNNING, WAITING, SPOKEN))})(?:\{{[^}}\n]*\}})? ([^\s]+)".encode(), re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Gauges:
    """None stands for what the engine does not tell, or did not tell in time. `kv_usage` is the fullest core's share of
    its KV blocks, from 0 to 1; the others are requests of all cores."""

    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None


UNKNOWN = Gauges()


class Looker:
    def __init__(self, client: EngineClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._seen: dict[str, tuple[float, Gauges]] = {}

    async def look(self, members: Iterable[Member]) -> Mapping[str, Gauges]:
        """By engine. An engine that is down is not asked."""
        listed = list(members)
        found = await asyncio.gather(*map(self._look, listed))
        return MappingProxyType({m.engine.id: gauges for m, gauges in zip(listed, found, strict=True)})

    async def identity_of(self, engine: Engine) -> Mapping[str, Any] | None:
        """What an engine says it is; None if it has no such page. Raises EngineUnreachable or EngineTimeout."""
        return told_by(await self._client.get(engine, IDENTITY, timeout=WITHIN))

    def keep(self, engines: Container[str]) -> None:
        """Forgets what was seen of all others."""
        for id_ in [id_ for id_ in self._seen if id_ not in engines]:
            del self._seen[id_]

    async def _look(self, member: Member) -> Gauges:
        engine, now = member.engine, self._clock.monotonic()
        at, seen = self._seen.get(engine.id, (now - FRESH, UNKNOWN))
        if now - at < FRESH:
            return seen
        gauges = UNKNOWN if not member.up else await self._ask(member)
        self._seen[engine.id] = (now, gauges)
        return gauges

    async def _ask(self, member: Member) -> Gauges:
        usage = await self._usage(member.engine)
        return Gauges(
            kv_usage=max(usage[USAGE], default=None),
            running=_total([*usage[RUNNING], *usage[SPOKEN]]),
            waiting=_total(usage[WAITING]),
        )

    async def _usage(self, engine: Engine) -> Mapping[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in (USAGE, RUNNING, WAITING, SPOKEN)}
        try:
            reply = await self._client.get(engine, METRICS, timeout=WITHIN)
        except EngineError:
            return found
        for name, value in _SERIES.findall(reply.body if reply.status == 200 else b""):
            try:
                number = float(value)
            except ValueError:
                continue
            if math.isfinite(number):
                found[name.decode()].append(number)
        return found


def _total(values: list[float]) -> int | None:
    return int(sum(values)) if values else None
