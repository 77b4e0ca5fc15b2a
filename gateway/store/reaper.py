"""Keeps this replica's lease, and closes what replicas without one have left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from common.clock import Clock
from common.errors import StoreUnavailable
from common.ids import IdSource
from common.tasks import Background
from gateway.lifecycle import Event, Record, speech_step, step
from gateway.store.port import Load, Outcome, Store, Transition

log = logging.getLogger(__name__)

BEATS = 4
"""Heartbeats in one lease: it survives the loss of three of them."""
FIRST_RETRY = 0.1
"""Seconds to the next beat after one that failed; doubled each time, up to the usual time between beats. A lease that
runs while the store is away leaves no time to lose."""


class Reaper:
    """`lease` in seconds. `on_reaped` is told how many requests were closed, each time some were.

    Any replica may reap, all of them at once too: only one of them wins a request's transition. A replica that was
    reaped while it was merely slow finds its next transition in conflict with the one that closed its request. One
    whose own lease was over waits with it: what held it up, a machine that stood still or a store that was away, may
    have held up the others too, and they get the time of one lease to come back.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: IdSource,
        owner: str,
        lease: float,
        on_reaped: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._owner = owner
        self._lease = lease
        self._on_reaped = on_reaped
        self._task = Background(self._run)
        self._failures = 0
        self._reap_from = self._beat_at = clock.monotonic()

    async def start(self) -> None:
        """Takes the lease before anything can be admitted under it. A store that is away does not stop a start: the
        gateway is then not ready, and says so."""
        await self.beat()
        self._task.start()

    async def stop(self) -> None:
        """Ends the lease: what this replica still has open may be closed by others from now on. So the caller stops
        writing first. If the store is away, the lease runs out by itself."""
        await self._task.stop()
        try:
            await self._store.retire(self._owner)
        except StoreUnavailable as e:
            log.warning("the lease of %s was not ended and runs out by itself: %s", self._owner, e.message)

    async def beat(self) -> None:
        """One heartbeat, and all orphans there are. Never raises: the next beat comes whatever happened."""
        now = self._clock.monotonic()
        if now - self._beat_at > self._lease:
            log.info("this process stood still for %.1f s, longer than its lease", now - self._beat_at)
            self._reap_from = now + self._lease
        self._beat_at = now
        try:
            await self._store.heartbeat(self._owner, self._lease)
            if self._failures:
                self._back()
            if self._clock.monotonic() >= self._reap_from:
                while await self.reap():
                    await self._store.heartbeat(self._owner, self._lease)
        except StoreUnavailable as e:
            if not self._failures:
                log.warning("no heartbeat: %s; requests of this replica expire if that lasts", e.message)
            self._failures += 1
        except Exception:
            log.exception("a heartbeat failed by a fault of the gateway")

    async def reap(self) -> int:
        """Closes one batch of what owners without a lease left live; returns how many. Raises StoreUnavailable."""
        orphans = [record for record in await self._store.orphans() if record.owner != self._owner]
        closed = 0
        for owner, records in groupby(sorted(orphans, key=attrgetter("owner")), key=attrgetter("owner")):
            closed += await self._close(owner, list(records))
        if closed:
            self._on_reaped(closed)
        return closed

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause())
            await self.beat()

    def _pause(self) -> float:
        usual = self._lease / BEATS
        return min(usual, FIRST_RETRY * 2 ** min(self._failures - 1, 16)) if self._failures else usual

    def _back(self) -> None:
        """While the store was away nobody could renew a lease, so an owner whose lease is over need not be dead."""
        log.info("the store is back after %d failed heartbeats", self._failures)
        self._failures = 0
        self._reap_from = self._clock.monotonic() + self._lease

    async def _close(self, owner: str, records: Sequence[Record]) -> int:
        transitions = [self._expiry(record) for record in records]
        places = [Load(engine, r.id, 0.0) for r in records for engine in r.engines]
        applied = await self._store.apply(transitions, free=places, disown=owner)
        closed = sum(one.outcome in (Outcome.OK, Outcome.DUP) for one in applied)
        if closed:
            log.warning("closed %d requests of %s, which stopped renewing its lease, as expired", closed, owner)
        return closed

    def _expiry(self, record: Record) -> Transition:
        to, _ = step(record.state, Event.EXPIRED)
        speech = speech_step(record.speech, Event.EXPIRED)
        message = f"the gateway {record.owner} stopped renewing its lease while the request was {record.state.value}"
        return Transition(
            request_id=record.id,
            op_id=self._ids.op_id(),
            expected=record.version,
            event=Event.EXPIRED,
            to=to,
            at=self._clock.now(),
            fields={
                "error": {"status": 503, "type": "server_error", "code": "gateway_died", "message": message},
                **({"speech": speech} if speech is not record.speech else {}),
            },
        )
