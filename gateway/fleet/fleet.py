"""All engines, and the background tasks that keep what is known of them fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from common.clock import Clock
from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError, StoreUnavailable
from common.tasks import end
from gateway.fleet.member import Member
from gateway.fleet.monitor import Monitor
from gateway.routing import Breaker, BreakerState, Candidate
from gateway.store.port import Store
from gateway.telemetry import Metrics
from gateway.transport.port import EngineClient

log = logging.getLogger(__name__)


class Fleet:
    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        client: EngineClient,
        store: Store,
        clock: Clock,
        connector: Connector,
        metrics: Metrics,
        interval: float,
        timeout: float,
        failures: int,
        load_interval: float,
        breaker_failures: int,
        breaker_pause: float,
    ) -> None:
        """`failures` are health checks, `breaker_failures` requests; times in seconds."""
        self.members: Mapping[str, Member] = {
            e.id: Member(e, Breaker(breaker_failures, breaker_pause)) for e in engines
        }
        if len(self.members) != len(engines):
            seen = ", ".join(e.id for e in engines)
            raise ConfigurationError(f"an engine is listed twice: {seen}; an engine that takes both legs has role both")
        self._monitors = [
            Monitor(m, client, clock, connector, interval=interval, timeout=timeout, failures=failures)
            for m in self.members.values()
        ]
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._load_interval = load_interval
        self._tasks: list[asyncio.Task[None]] = []
        self._look: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """One check of every engine, so that a gateway is ready as soon as its engines are; then in the background."""
        await asyncio.gather(*(m.check() for m in self._monitors))
        self._tasks = [asyncio.create_task(m.run()) for m in self._monitors]
        self._tasks.append(asyncio.create_task(self._watch_load()))

    async def stop(self) -> None:
        await end(*self._tasks, *([self._look] if self._look is not None else []))
        self._tasks = []

    def candidates(self) -> list[Candidate]:
        now = self._clock.monotonic()
        return [m.candidate(now) for m in self.members.values()]

    def models(self) -> Mapping[str, int | None]:
        """Every served name with its longest context: the shortest of its engines', None if no engine tells.

        Names of engines that are down for now are kept: their model exists, it just cannot be served.
        """
        found: dict[str, int | None] = {}
        for member in self.members.values():
            for name, length in member.models.items():
                known = found.get(name)
                found[name] = length if known is None else known if length is None else min(known, length)
        return found

    def routable(self, leg: Role) -> bool:
        return any(m.up and not m.draining and m.engine.role.serves(leg) for m in self.members.values())

    def enter(self, engine: str) -> None:
        """A request takes a place on an engine."""
        member = self.members[engine]
        member.local += 1
        member.breaker.sent(self._clock.monotonic())

    def leave(self, engine: str) -> None:
        """The request's part there is over."""
        member = self.members[engine]
        member.local -= 1
        member.breaker.ended()

    def succeeded(self, engine: str) -> None:
        """The engine did what a request asked of it, or refused it for a fault of the request."""
        member, now = self.members[engine], self._clock.monotonic()
        was = member.breaker.state(now)
        member.breaker.succeeded(now)
        if was is BreakerState.HALF_OPEN:
            log.info("engine %s takes requests again", engine)

    def failed(self, engine: str, fault: str) -> None:
        """The engine failed at a request."""
        member, now = self.members[engine], self._clock.monotonic()
        was = member.breaker.state(now)
        member.breaker.failed(now)
        self._metrics.engine_failures.labels(engine).inc()
        if was is not BreakerState.OPEN and member.breaker.state(now) is BreakerState.OPEN:
            self._metrics.breaker_opened.labels(engine).inc()
            log.warning("engine %s gets no requests for a while: %s", engine, fault)

    def lost(self, engine: str) -> asyncio.Event:
        """Is set once the engine is found to be gone, or back as another, from now on."""
        return self.members[engine].lost

    def look_soon(self) -> None:
        """A look at the shared load beside whatever goes on, unless one is under way: who admits a request wants the
        next one to know what other replicas admitted meanwhile."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self.look_at_load())

    async def _watch_load(self) -> None:
        while True:
            await self.look_at_load()
            await asyncio.sleep(self._load_interval)

    async def look_at_load(self) -> None:
        """One look at the shared load. While the store is away the last look stands, with this gateway's own on top."""
        local = {name: m.local for name, m in self.members.items()}
        try:
            loads = await self._store.loads(list(self.members))
        except StoreUnavailable:
            self._metrics.store_errors.labels("loads").inc()
            return
        for name, member in self.members.items():
            member.shared, member.local_at_look = loads.get(name, 0), local[name]
            self._metrics.engine_load.labels(name).set(member.load)
            self._metrics.engine_up.labels(name, member.engine.role.value).set(member.up)
