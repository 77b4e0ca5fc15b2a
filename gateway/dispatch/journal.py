"""One request's transitions, written in order behind the network calls that they describe.

`fire` decides a transition by the table at once and returns; a task writes what has gathered, one round trip for
all of it. A split request costs three: admission with `prefill_sent`; `prefill_done` with `decode_sent`; the end. Each
further attempt costs one or two more; a speech that ends before its text, one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

from common.clock import Clock
from common.errors import DuetError, StoreUnavailable
from common.ids import IdSource
from gateway.dispatch.route import Route
from gateway.lifecycle import LIVE, Effect, Event, Record, speech_step, step
from gateway.store.port import Applied, Load, Outcome, Store, Transition
from gateway.telemetry import Metrics

log = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries of a write while the store is away; the last one is repeated until it is back. What waits is
bounded: nothing new is admitted meanwhile."""


class Journal:
    def __init__(
        self,
        record: Record,
        loads: Mapping[Effect, Load],
        *,
        store: Store,
        clock: Clock,
        ids: IdSource,
        metrics: Metrics,
        on_free: Callable[[str, str], None],
    ) -> None:
        """`loads` maps FREE_PREFILL and FREE_DECODE to the in-flight places that they end; `on_free` is told the
        engine and the request of each as it ends."""
        self.record = record
        self.began = clock.monotonic()
        """When the request was admitted."""
        self.state = record.state
        self.speech = record.speech
        self._version = record.version
        self._loads = dict(loads)
        self._beside: dict[str, Load] = {}
        """Places beside those of the legs, by engine."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._on_free = on_free
        self._pending: list[Transition] = []
        self._freed: list[Load] = []
        self._entered: list[Load] = []
        self._writer: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[Any]] = set()
        self._abandoned = False

    @property
    def live(self) -> bool:
        return self.state in LIVE

    async def admit(self, first: Event) -> None:
        """Writes the record and its first transition and waits for it. Raises StoreUnavailable."""
        transition, _ = self._step(first, {})
        with self._metrics.store_seconds.labels("admit").time():
            applied = await self._store.admit(self.record, transitions=[transition], loads=list(self._loads.values()))
        self._look_at(applied)

    def fire(self, event: Event, **fields: Any) -> Sequence[Effect]:
        """One transition, now; returns the effects that are the caller's to run. Raises IllegalTransition."""
        transition, effects = self._step(event, fields)
        self._pending.append(transition)
        left = []
        for effect in effects:
            if effect in (Effect.FREE_PREFILL, Effect.FREE_DECODE):
                self._free(effect)
            else:
                left.append(effect)
        if not self.live:
            for engine in list(self._beside):
                self.leave(engine)
        self._write_soon()
        return left

    def enter(self, load: Load) -> None:
        """A place beside those of the legs, written with the next transition. It ends with `leave` or the request."""
        self._beside[load.engine] = load
        self._entered.append(load)

    def leave(self, engine: str) -> None:
        """Gives such a place back; where no transition comes in the same step of the loop, by a round trip of its own:
        the next one may be far. Safe to call again."""
        if load := self._beside.pop(engine, None):
            self._give_back(load)

    def decode_is_done(self) -> None:
        """Gives decode's place back: it has said all that it had to say, and others go on for the request."""
        self._free(Effect.FREE_DECODE)

    def begin_again(self, route: Route, loads: Mapping[Effect, Load]) -> Sequence[Effect]:
        """`retried`, and the places of the next attempt in place of those of the last one. Returns as `fire` does."""
        effects = self.fire(
            Event.RETRIED,
            attempt=route.attempt,
            prefill=route.prefill.id if route.prefill is not None else None,
            decode=route.decode.id,
            unsplit=route.unsplit,
            handoff=None,
            handoff_expires_at=None,
        )
        self._loads = dict(loads)
        self._entered += loads.values()
        return effects

    def abandon(self, event: Event) -> None:
        """Closes what a failed admission may have left in the store. Tries for a few seconds only: while the store is
        away there may be many of these."""
        self._abandoned = True
        self.fire(event)

    def beside(self, write: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins another write of this request's, that has its own bound and nothing to do with its transitions. It is
        not the caller's to end: `flush` waits for it too."""
        task = asyncio.create_task(write)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task

    async def flush(self) -> None:
        """Waits until everything fired so far is written, however long the store is away."""
        while self._writer is not None and not self._writer.done():
            await asyncio.shield(self._writer)
        if self._others:
            await asyncio.wait(set(self._others))

    def _step(self, event: Event, fields: Mapping[str, Any]) -> tuple[Transition, Sequence[Effect]]:
        to, effects = step(self.state, event)
        speech = speech_step(self.speech, event)
        if speech is not self.speech:
            fields = {"speech": speech, **fields}
        transition = Transition(
            request_id=self.record.id,
            op_id=self._ids.op_id(),
            expected=self._version,
            event=event,
            to=to,
            at=self._clock.now(),
            fields=fields,
        )
        self.state, self.speech = to, speech
        self._version += 1
        return transition, effects

    def _free(self, effect: Effect) -> None:
        load = self._loads.pop(effect, None)
        if load is not None:
            self._give_back(load)

    def _give_back(self, load: Load) -> None:
        if load in self._entered:
            self._entered.remove(load)  # not written yet: nothing to free there
        else:
            self._freed.append(load)
            self._write_soon()
        self._on_free(load.engine, load.request_id)

    def _write_soon(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        await asyncio.sleep(0)  # what is fired in the same step of the loop goes in the same round trip
        while self._pending or self._freed:
            batch, self._pending = self._pending, []
            freed, self._freed = self._freed, []
            entered, self._entered = self._entered, []
            ended = bool(batch) and batch[-1].to not in LIVE
            self._look_at(await self._apply(batch, freed, entered, self.record.owner if ended else None))

    async def _apply(
        self, batch: Sequence[Transition], freed: Sequence[Load], entered: Sequence[Load], disown: str | None
    ) -> Sequence[Applied]:
        for delay in chain(RETRY_DELAYS, () if self._abandoned else repeat(RETRY_DELAYS[-1])):
            try:
                with self._metrics.store_seconds.labels("apply").time():
                    return await self._store.apply(batch, free=freed, enter=entered, disown=disown)
            except StoreUnavailable:
                self._metrics.store_errors.labels("apply").inc()
                await asyncio.sleep(delay)
        return ()

    def _look_at(self, applied: Sequence[Applied]) -> None:
        for one in applied:
            if one.outcome in (Outcome.CONFLICT, Outcome.MISSING) and not self._abandoned:
                self._metrics.store_conflicts.inc()
                seen = one.state.value if one.state is not None else "gone"
                log.warning("request %s was moved by somebody else: the store has it as %s", self.record.id, seen)
                return


def loads_of(request_id: str, route: Route, expires_at: float) -> dict[Effect, Load]:
    """The in-flight places that an attempt takes: one on each of its engines."""
    loads = {Effect.FREE_DECODE: Load(route.decode.id, request_id, expires_at)}
    if route.prefill is not None:
        loads[Effect.FREE_PREFILL] = Load(route.prefill.id, request_id, expires_at)
    return loads


def described(error: DuetError) -> dict[str, Any]:
    """An error as the record keeps it."""
    return {"status": error.status, "type": error.type, "code": error.code, "message": error.message}
