"""All engines, and the background tasks that keep what is known of them fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from common.clock import Clock
from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError, StoreUnavailable
from common.tasks import Background, Lasting, end
from gateway.fleet.fit import contradiction, misfit
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
        """`failures` are health checks, `breaker_failures` requests; times in seconds. With a Talker among the engines
        all are asked what speech must know of them."""
        self._members: dict[str, Member] = {}
        self._monitors: dict[str, Monitor] = {}
        self._speech = any(e.role is Role.TALKER for e in engines)
        self._breaker = partial(Breaker, breaker_failures, breaker_pause)
        self._monitor = partial(
            Monitor,
            client=client,
            clock=clock,
            connector=connector,
            interval=interval,
            timeout=timeout,
            failures=failures,
            misfit=self._misfit,
            on_refused=lambda id_: metrics.engines_refused.labels(id_).inc(),
        )
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._load_interval = load_interval
        self._watch = Background(self._watch_load)
        self._watching = False
        self._checking: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._look: asyncio.Task[None] | None = None
        for engine in engines:
            self.join(engine)

    @property
    def members(self) -> Mapping[str, Member]:
        """By `Engine.id`. Those that were removed are among them until nothing of this gateway runs on them."""
        return self._members

    async def start(self) -> None:
        """One check of every engine, so that a gateway is ready as soon as its engines are; then in the background.
        Of two that do not fit each other the one that was named first stays, on every replica."""
        monitors = list(self._monitors.values())
        faults = await asyncio.gather(*(m.ask() for m in monitors))
        for monitor, fault in zip(monitors, faults, strict=True):
            monitor.conclude(fault)
        self._watching = True
        for id_ in self._members:
            self._check_from_now_on(id_)
        self._watch.start()

    async def stop(self) -> None:
        self._watching = False
        await self._watch.stop()
        await end(*self._checking.values(), *self._ending, *([self._look] if self._look is not None else []))
        self._checking.clear()

    def join(
        self,
        engine: Engine,
        *,
        source: str = "settings",
        stranger: bool = False,
    ) -> None:
        """One more engine; it gets requests once it has passed a check and fits the others. Keywords are `Member`'s.
        Raises ConfigurationError if it is there."""
        if engine.id in self._members:
            raise ConfigurationError(
                f"an engine is listed twice: {engine.id}; an engine that takes both legs has role both"
            )
        self._members[engine.id] = member = Member(engine, self._breaker(), source=source, stranger=stranger)
        if engine.role is Role.TALKER and not self._speech:
            self._speech = True
            for monitor in self._monitors.values():
                monitor.hear_of_speech()
        self._monitors[engine.id] = self._monitor(member, speech=self._speech)
        if self._watching:
            self._check_from_now_on(engine.id)

    def renew(self, engine: str) -> None:
        """The engine was started anew: what it held is gone, and it may be another than it was."""
        self._members[engine].lose()
        self._monitors[engine].look_anew()

    def dismiss(self, engine: str) -> None:
        """The engine gets nothing new, and is forgotten once nothing of this gateway runs on it."""
        member = self._members[engine]
        member.leaving = True
        self._forget_if_done(member)

    def is_up(self, engine: str) -> bool:
        """Whether it answers its health checks; one that was removed does not count."""
        return engine in self._members and self._members[engine].up

    def _misfit(self, member: Member) -> str | None:
        """Why it does not fit the engines that are up."""
        up = {m.engine.id: (m.engine, m.known) for m in self._members.values() if m.up and m is not member}
        return contradiction(member.declared, member.identity or {}, by="by its own word") or misfit(
            member.engine, member.known, up, stranger=member.stranger
        )

    def _check_from_now_on(self, engine: str) -> None:
        self._checking[engine] = asyncio.create_task(self._monitors[engine].run())

    def _forget_if_done(self, member: Member) -> None:
        if not member.leaving or member.local:
            return
        id_, role = member.engine.id, member.engine.role.value
        del self._members[id_], self._monitors[id_]
        if (checking := self._checking.pop(id_, None)) is not None:
            checking.cancel()
            self._ending.add(checking)
            checking.add_done_callback(self._ending.discard)
        self._metrics.forget(id_, role)
        log.info("%s engine %s is no longer of the fleet", role, id_)

    def candidates(self) -> list[Candidate]:
        now = self._clock.monotonic()
        return [m.candidate(now) for m in self.members.values()]

    def models(self) -> Mapping[str, int | None]:
        """Every served name with its longest context: the shortest of its Thinkers', None if no engine tells.

        Names of engines that are down for now are kept: their model exists, it just cannot be served.
        """
        found: dict[str, int | None] = {}
        for member in self.members.values():
            for name, length in member.models.items() if member.engine.role.thinks else ():
                known = found.get(name)
                found[name] = length if known is None else known if length is None else min(known, length)
        return found

    def speakers(self, model: str) -> tuple[str, ...]:
        """The voices that Talkers of a model have, also those that are down for now."""
        talkers = [m for m in self.members.values() if m.engine.role is Role.TALKER and model in m.models]
        return tuple(dict.fromkeys(name for m in talkers for name in m.speakers))

    def routable(self, leg: Role) -> bool:
        return any(m.up and m.open and m.engine.role.serves(leg) for m in self.members.values())

    def enter(self, engine: str, request: str) -> None:
        """A request takes a place on an engine."""
        member = self.members[engine]
        member.local += 1
        member.breaker.sent(request, self._clock.monotonic())

    def leave(self, engine: str, request: str) -> None:
        """The request's part there is over."""
        member = self.members[engine]
        member.local -= 1
        member.breaker.ended(request)
        self._forget_if_done(member)

    def succeeded(self, engine: str) -> None:
        """The engine did what a request asked of it, or refused it for a fault of the request."""
        member, now = self._members.get(engine), self._clock.monotonic()
        if member is None:
            return  # removed meanwhile
        was = member.breaker.state(now)
        member.breaker.succeeded(now)
        if was is BreakerState.HALF_OPEN:
            log.info("engine %s takes requests again", engine)

    def failed(self, engine: str, fault: str) -> None:
        """The engine failed at a request."""
        member, now = self._members.get(engine), self._clock.monotonic()
        if member is None:
            return  # removed meanwhile
        was = member.breaker.state(now)
        member.breaker.failed(now)
        self._metrics.engine_failures.labels(engine).inc()
        if was is not BreakerState.OPEN and member.breaker.state(now) is BreakerState.OPEN:
            self._metrics.breaker_opened.labels(engine).inc()
            log.warning("engine %s gets no requests for a while: %s", engine, fault)

    def lost(self, engine: str) -> asyncio.Event:
        """Is set once the engine is found to be gone, or back as another, from now on."""
        return self._members[engine].lost

    def look_soon(self) -> None:
        """A look at the shared load beside whatever goes on, unless one is under way: who admits a request wants the
        next one to know what other replicas admitted meanwhile."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self.look_at_load())

    async def _watch_load(self) -> None:
        each = Lasting(log, "a look at the engines' load")
        while True:
            with each:
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
        for name, member in self._members.items():
            if name not in loads:
                continue  # it joined meanwhile
            member.shared, member.local_at_look = loads[name], local[name]
            self._metrics.engine_load.labels(name).set(member.load)
            self._metrics.engine_up.labels(name, member.engine.role.value).set(member.up)
