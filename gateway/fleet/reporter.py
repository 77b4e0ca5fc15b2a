"""Tells the feed what this replica sees of engines: that one is up, down or refused, that its breaker keeps requests
away, or that it has left the fleet."""

from __future__ import annotations

import asyncio
import logging

from common.clock import Clock
from common.errors import StoreUnavailable
from common.tasks import Background, Lasting
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member
from gateway.routing import BreakerState
from gateway.store.port import Store

log = logging.getLogger(__name__)

LEFT = "engine_left"


class Reporter:
    """Looks every `interval` seconds. What happens while the store is away is told once it is back, as it then is."""

    def __init__(self, fleet: Fleet, *, store: Store, clock: Clock, replica: str, interval: float) -> None:
        self._fleet = fleet
        self._store = store
        self._clock = clock
        self._replica = replica
        self._interval = interval
        self._told: dict[tuple[str, str], str] = {}
        self._watch = Background(self._run)

    async def start(self) -> None:
        self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    async def look(self) -> None:
        """Raises StoreUnavailable."""
        members = self._fleet.members
        for id_ in {id_ for id_, _ in self._told if id_ not in members}:
            await self._store.tell(self._clock.now(), {"event": LEFT, "engine": id_, "replica": self._replica})
            self._told = {key: event for key, event in self._told.items() if key[0] != id_}
        for id_, member in [(id_, m) for id_, m in members.items() if m.checked_at is not None]:
            how = "up" if member.up else "refused" if member.refused else "down"
            await self._tell(id_, "up", f"engine_{how}", fault=member.fault)
            if (state := self._breaker(member)) is not BreakerState.CLOSED or (id_, "breaker") in self._told:
                await self._tell(id_, "breaker", f"breaker_{state.value}", fault=None)

    async def _tell(self, engine: str, what: str, event: str, *, fault: str | None) -> None:
        if self._told.get((engine, what)) == event:
            return
        fields = {"event": event, "engine": engine, "replica": self._replica}
        await self._store.tell(self._clock.now(), fields if fault is None else {**fields, "fault": fault})
        self._told[engine, what] = event

    def _breaker(self, member: Member) -> BreakerState:
        return member.breaker.state(self._clock.monotonic())

    async def _run(self) -> None:
        each = Lasting(log, "a look at what becomes of engines")
        while True:
            with each:
                try:
                    await self.look()
                except StoreUnavailable as e:
                    log.debug("what becomes of engines is not told for now: %s", e.message)
            await asyncio.sleep(self._interval)
