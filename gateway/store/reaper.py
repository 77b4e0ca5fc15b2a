"""Keeps this replica's lease, and closes what replicas without one have left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from common.clock import Clock
from common.errors import StoreUnavailable
from common.ids import IdSource
from gateway.lifecycle import Event, Record, step
from gateway.store.port import Load, Outcome, Store, Transition

log = logging.getLogger(__name__)

BEATS = 4
"""Heartbeats in one lease: it survives the loss of three of them."""


class Reaper:
    """`lease` in seconds. `on_reaped` is told how many requests were closed, each time some were.

    Any replica may reap, all of them at once too: only one of them wins a request's transition.
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
        self._task: asyncio.Task[None] | None = None
        self._away = False

    async def start(self) -> None:
        """Takes the lease before anything can be admitted under it. A store that is away does not stop a start: the
        gateway is then not ready, and says so."""
        await self._beat()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends the lease: what this replica still runs may be closed by others from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        with suppress(StoreUnavailable):
            await self._store.retire(self._owner)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._lease / BEATS)
            await self._beat()

    async def _beat(self) -> None:
        """One heartbeat and one look for orphans. Never raises: the next beat comes whatever happened."""
        try:
            await self._store.heartbeat(self._owner, self._lease)
            await self.reap()
        except StoreUnavailable as e:
            if not self._away:
                log.warning("no heartbeat: %s; requests of this replica expire if that lasts", e.message)
            self._away = True
        except Exception:
            log.exception("a heartbeat failed by a fault of the gateway")
        else:
            if self._away:
                log.info("the store is back")
            self._away = False

    async def reap(self) -> int:
        """Closes what owners without a lease left live; returns how many. Raises StoreUnavailable."""
        orphans = [record for record in await self._store.orphans() if record.owner != self._owner]
        closed = await self._close(orphans) if orphans else 0
        if closed:
            log.warning("closed %d requests whose gateway died, as expired", closed)
            self._on_reaped(closed)
        return closed

    async def _close(self, records: Sequence[Record]) -> int:
        """The claims stay: the store drops those of ended requests at its next look, and keeps one whose transition
        was lost to an owner that lives after all."""
        transitions = [self._expiry(record) for record in records]
        places = [Load(engine, r.id, 0.0) for r in records for engine in (r.prefill, r.decode) if engine is not None]
        applied = await self._store.apply(transitions, free=places)
        return sum(1 for one in applied if one.outcome is Outcome.OK)

    def _expiry(self, record: Record) -> Transition:
        to, _ = step(record.state, Event.EXPIRED)
        message = f"the gateway {record.owner} stopped renewing its lease while the request was {record.state.value}"
        return Transition(
            request_id=record.id,
            op_id=self._ids.op_id(),
            expected=record.version,
            event=Event.EXPIRED,
            to=to,
            at=self._clock.now(),
            fields={"error": {"status": 503, "type": "server_error", "code": "gateway_died", "message": message}},
        )
