"""Takes a request in, and sees it through whatever happens to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from common.clock import Clock
from common.connectors import Connector
from common.errors import DuetError, RequestCancelled, StoreUnavailable
from common.ids import IdSource
from common.tasks import end
from gateway.dispatch.attempt import Parts
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.handoffs import Abandoned, UsedHandoffs
from gateway.dispatch.journal import Journal, loads_of
from gateway.dispatch.policy import Policies
from gateway.dispatch.pulse import Pulse
from gateway.dispatch.route import Route, Router
from gateway.dispatch.serving import Retries, Serving
from gateway.dispatch.sink import Sink
from gateway.dispatch.speech import Ask, Desk
from gateway.dispatch.speech.parts import SpeechParts
from gateway.fleet import Fleet
from gateway.lifecycle import Event, Record, Speech, State
from gateway.routing import Picker
from gateway.store.port import Store
from gateway.telemetry import Metrics
from gateway.transport.port import EngineClient
from gateway.wire import ClientRequest
from gateway.wire.errors import stream_error

log = logging.getLogger(__name__)

DRAIN_WITHIN = 5.0
"""Seconds that a shutdown waits for a store that is away."""
LAST_WORD_WITHIN = 1.0
"""Seconds that a client which reads nothing may delay the end of its cancelled request."""


class Coordinator:
    def __init__(
        self,
        *,
        fleet: Fleet,
        picker: Picker,
        store: Store,
        client: EngineClient,
        connector: Connector,
        clock: Clock,
        ids: IdSource,
        metrics: Metrics,
        deadlines: LegDeadlines,
        policies: Policies,
        budget: RetryBudget,
        pulse: Pulse,
        replica: str,
        load_ttl: float,
        audio_ttl: float = 3600.0,
        recalled_most: int = 64 * 2**20,
        refuse_unsplit: bool = False,
        admission: float = 10.0,
    ) -> None:
        """`admission` bounds what comes before the first call of an engine; times in seconds.
        `recalled_most` bounds what earlier answers said that one request refers to, in bytes."""
        self._fleet = fleet
        self._store = store
        self._abandoned = Abandoned(client, connector, fleet, Picker(), clock, metrics)
        self._desk = Desk(
            SpeechParts(
                client, fleet, Picker(), store, clock, ids, metrics, deadlines, budget,
                policies.on_speech_failure, policies.attempts, audio_ttl, load_ttl,
                recalled_most,
            )
        )  # fmt: skip
        self._parts = Parts(
            client, connector, fleet, clock, metrics, deadlines, UsedHandoffs(), pulse, self._abandoned, self._desk
        )
        self._router = Router(fleet, picker, policies, refuse_unsplit=refuse_unsplit)
        self._retries = Retries(self._router, policies, budget, load_ttl)
        self._ids = ids
        self._replica = replica
        self._load_ttl = load_ttl
        self._admission = admission
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        """Of those that run: whose end somebody asked for."""
        self._closing: set[asyncio.Task[None]] = set()

    def new_id(self) -> str:
        return self._ids.request_id()

    async def run(self, request_id: str, request: ClientRequest, sink: Sink, *, client_id: str | None = None) -> None:
        """Answers one request into `sink`.

        Raises a DuetError if nothing was sent yet: the caller owes the client a status and a body. Later failures
        end the stream with an error event. Cancelling this closes both legs and records the request as cancelled.
        """
        work = self._running[request_id] = asyncio.ensure_future(self._serve(request_id, request, sink, client_id))
        try:
            await work
        except asyncio.CancelledError:
            if request_id not in self._asked:
                raise
            await self._last_word(sink, RequestCancelled("the request was cancelled by an operator"))
        finally:
            self._asked.discard(request_id)
            del self._running[request_id]

    def cancel(self, request_id: str) -> bool:
        """Ends a request that runs here, at whatever point it is. False if it does not run here."""
        work = self._running.get(request_id)
        if work is None or work.done():
            return False
        self._asked.add(request_id)
        work.cancel()
        return True

    async def drain(self) -> None:
        """Waits for what is still being written of requests that ended; at most DRAIN_WITHIN seconds.

        What is left then is lost to a store that is away: the records expire with this gateway's lease.
        """
        await self._abandoned.drain(DRAIN_WITHIN)
        if self._closing:
            _, late = await asyncio.wait(set(self._closing), timeout=DRAIN_WITHIN)
            if late:
                log.error("the last transitions of %d requests were not written: the store is away", len(late))
            await end(*late)

    async def _serve(self, request_id: str, request: ClientRequest, sink: Sink, client_id: str | None) -> None:
        try:
            async with asyncio.timeout(self._admission):
                request = await self._desk.recalled(request)
                ask = self._desk.ask(request)
                route = self._router.first(request)
                journal = await self._admit(self._record(request_id, request, route, client_id, ask), route)
        except TimeoutError:
            raise StoreUnavailable(
                f"the request could not be admitted within {self._admission:g} s: the store is slow"
            ) from None
        try:
            await Serving(self._parts, self._retries, request, sink, journal, route, ask).go()
        finally:
            self._in_background(journal.flush())

    async def _last_word(self, sink: Sink, error: DuetError) -> None:
        if not sink.started:
            raise error
        self._parts.metrics.saw(error)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_WITHIN):
                await sink.end(stream_error(error))

    def _record(
        self, request_id: str, request: ClientRequest, route: Route, client_id: str | None, ask: Ask | None
    ) -> Record:
        now = self._parts.clock.now()
        return Record(
            id=request_id,
            state=State.ACCEPTED,
            version=1,
            attempt=route.attempt,
            model=request.model,
            endpoint=request.endpoint,
            stream=request.stream,
            connector=self._parts.connector.name,
            owner=self._replica,
            prefill=route.prefill.id if route.prefill is not None else None,
            decode=route.decode.id,
            unsplit=route.unsplit,
            client_request_id=client_id,
            created_at=now,
            updated_at=now,
            timings={State.ACCEPTED.value: now},
            speech=Speech.OFF if ask is None else Speech.WAITING,
        )

    async def _admit(self, record: Record, route: Route) -> Journal:
        loads = loads_of(record.id, route, record.created_at + self._load_ttl)
        for load in loads.values():
            self._fleet.enter(load.engine, load.request_id)
        journal = Journal(
            record,
            loads,
            store=self._store,
            clock=self._parts.clock,
            ids=self._ids,
            metrics=self._parts.metrics,
            on_free=self._fleet.leave,
        )
        self._fleet.look_soon()
        try:
            await journal.admit(Event.DECODE_SENT if route.prefill is None else Event.PREFILL_SENT)
        except BaseException as e:
            # The write may have reached the store all the same: close what may be there, and free the places.
            journal.abandon(Event.FAILED if isinstance(e, DuetError) else Event.CANCELLED)
            self._in_background(journal.flush())
            raise
        if route.unsplit is not None:
            self._parts.metrics.unsplit.labels(route.unsplit).inc()
        return journal

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
