"""Takes a request in, and sees it through whatever happens to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from common.clock import Clock
from common.connectors import Connector
from common.connectors.base import HandoffContext
from common.engine import Engine, Role
from common.errors import BadRequest, DuetError, ModelNotFound, NoRoutableEngine
from common.ids import IdSource, leg_id
from common.tasks import end
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.journal import Journal, loads_of
from gateway.dispatch.run import Parts, Run
from gateway.dispatch.sink import Sink
from gateway.fleet import Fleet
from gateway.lifecycle import Event, Record, State
from gateway.routing import Picker, Wish
from gateway.store.port import Store
from gateway.telemetry import Metrics
from gateway.transport.port import EngineClient
from gateway.wire import ClientRequest, unsplit_reason

log = logging.getLogger(__name__)

DRAIN_WITHIN = 5.0
"""Seconds that a shutdown waits for a store that is away."""


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
        replica: str,
        load_ttl: float,
        refuse_unsplit: bool = False,
    ) -> None:
        self._fleet = fleet
        self._picker = picker
        self._store = store
        self._parts = Parts(client, connector, clock, metrics, deadlines)
        self._ids = ids
        self._replica = replica
        self._load_ttl = load_ttl
        self._refuse_unsplit = refuse_unsplit
        self._closing: set[asyncio.Task[None]] = set()

    def new_id(self) -> str:
        return self._ids.request_id()

    async def run(self, request_id: str, request: ClientRequest, sink: Sink, *, client_id: str | None = None) -> None:
        """Answers one request into `sink`.

        Raises a DuetError if nothing was sent yet: the caller owes the client a status and a body. Later failures
        end the stream with an error event. Cancelling this closes both legs and records the request as cancelled.
        """
        record, prefill, decode = self._admissible(request_id, request, client_id)
        journal = await self._admit(record)
        ctx = None
        if prefill is not None:
            transfer = leg_id(record.id, record.attempt, "kv")
            ctx = HandoffContext(transfer, prefill, decode, record.created_at)
        try:
            await Run(self._parts, request, sink, journal, decode, ctx).go()
        finally:
            self._in_background(journal.flush())

    async def drain(self) -> None:
        """Waits for what is still being written of requests that ended; at most DRAIN_WITHIN seconds.

        What is left then is lost to a store that is away: the records expire with this gateway's lease.
        """
        if self._closing:
            _, late = await asyncio.wait(set(self._closing), timeout=DRAIN_WITHIN)
            if late:
                log.error("the last transitions of %d requests were not written: the store is away", len(late))
            await end(*late)

    def _admissible(
        self, request_id: str, request: ClientRequest, client_id: str | None
    ) -> tuple[Record, Engine | None, Engine]:
        self._check_model(request.model)
        reason = unsplit_reason(request)
        if reason is not None and self._refuse_unsplit:
            raise BadRequest(
                f"this request cannot be split into prefill and decode ({reason}), and this gateway is set to refuse "
                "such requests (DUET_UNSPLIT=refuse)"
            )
        candidates = self._fleet.candidates()
        prefill = None
        if reason is None:
            prefill = self._picker.pick(candidates, Wish(Role.PREFILL, request.model)).engine
        other = prefill.id if prefill is not None else None
        decode = self._picker.pick(candidates, Wish(Role.DECODE, request.model, other_than=other)).engine
        now = self._parts.clock.now()
        record = Record(
            id=request_id,
            state=State.ACCEPTED,
            version=1,
            attempt=1,
            model=request.model,
            endpoint=request.endpoint,
            stream=request.stream,
            connector=self._parts.connector.name,
            owner=self._replica,
            prefill=other,
            decode=decode.id,
            unsplit=reason,
            client_request_id=client_id,
            created_at=now,
            updated_at=now,
            timings={State.ACCEPTED.value: now},
        )
        return record, prefill, decode

    def _check_model(self, model: str) -> None:
        """A model that nobody has heard of is the client's fault, unless no engine has been heard of at all."""
        models = self._fleet.models()
        if not models:
            raise NoRoutableEngine("no engine has answered yet")
        if model not in models:
            raise ModelNotFound(f"The model `{model}` does not exist.", param="model")

    async def _admit(self, record: Record) -> Journal:
        loads = loads_of(record, record.created_at + self._load_ttl)
        for load in loads.values():
            self._fleet.enter(load.engine)
        journal = Journal(
            record,
            loads,
            store=self._store,
            clock=self._parts.clock,
            ids=self._ids,
            metrics=self._parts.metrics,
            on_free=self._fleet.leave,
        )
        try:
            await journal.admit(Event.DECODE_SENT if record.prefill is None else Event.PREFILL_SENT)
        except BaseException as e:
            # The write may have reached the store all the same: close what may be there, and free the places.
            journal.abandon(Event.FAILED if isinstance(e, DuetError) else Event.CANCELLED)
            self._in_background(journal.flush())
            raise
        if record.unsplit is not None:
            self._parts.metrics.unsplit.labels(record.unsplit).inc()
        return journal

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
