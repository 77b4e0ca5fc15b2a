"""One request from its admission to its end: attempt after attempt as the policies allow, and one way out."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from common.errors import DuetError, EngineError, EngineRefused, HandoffExpired, NoRoutableEngine
from gateway.dispatch.attempt import Attempt, Parts
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.journal import Journal, described, loads_of
from gateway.dispatch.policy import (
    UNSPLIT_AFTER,
    Part,
    Policies,
    Policy,
    is_the_engines,
    may_help,
    may_pass,
    part_of,
)
from gateway.dispatch.relay import Ending
from gateway.dispatch.route import Route, Router
from gateway.dispatch.sink import Sink
from gateway.dispatch.speech import Ask
from gateway.fleet import Fleet
from gateway.lifecycle import Event, State
from gateway.wire import ClientRequest
from gateway.wire.errors import stream_error

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.05
"""Seconds, at most, before a second attempt; twice as long before each further one. The real pause is anything up to
that, so that requests that failed together do not come again together."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How attempts follow each other. `jitter` gives a number from 0 to 1."""

    router: Router
    policies: Policies
    budget: RetryBudget
    load_ttl: float
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class Suspicion:
    """Failures that may be the request's own fault: an engine is blamed once another did what it could not, and once
    for one request. A decode that then did it with another's KV was not to blame: the first prefill was."""

    fleet: Fleet
    held: list[tuple[EngineError, str | None]] = field(default_factory=list)
    """Each with the prefill engine of its attempt."""
    blamed: set[str] = field(default_factory=set)

    def raised(self, error: EngineError, prefill: str | None, *, midway: bool) -> None:
        if not may_help(error) or isinstance(error, HandoffExpired):
            return
        if midway or is_the_engines(error):
            self._blame(error.engine, error.message)
        else:
            self.held.append((error, prefill))

    def answered(self, decode: str) -> None:
        """The request has its answer, so what failed before was the engines' fault."""
        for error, prefill in self.held:
            if error.engine != decode:
                self._blame(error.engine, error.message)
            elif prefill is not None:
                self._blame(prefill, f"{decode} could not decode what it had prefilled: {error.message}")

    def _blame(self, engine: str, fault: str) -> None:
        if engine not in self.blamed:
            self.blamed.add(engine)
            self.fleet.failed(engine, fault)


class Serving:
    def __init__(
        self,
        parts: Parts,
        retries: Retries,
        request: ClientRequest,
        sink: Sink,
        journal: Journal,
        route: Route,
        ask: Ask | None = None,
    ) -> None:
        self._parts = parts
        self._retries = retries
        self._request = request
        self._sink = sink
        self._journal = journal
        self._ask = ask
        self._attempt = Attempt(parts, request, sink, journal, route, ask)
        self._tried: frozenset[str] = frozenset()
        self._undecodable: frozenset[str] = frozenset()
        """Prefill engines of attempts in which decode failed: it may have been for want of their KV."""
        self._suspicion = Suspicion(parts.fleet)

    async def go(self) -> None:
        """Runs to the end. Raises DuetError if nothing was sent to the client yet."""
        metrics = self._parts.metrics
        outcome = "failed"
        metrics.in_flight.inc()
        try:
            ending = await self._answer()
            self._end(Event.COMPLETED, usage=ending.usage)
            outcome = "finished"
            await self._sink.end(ending.tail)
        except asyncio.CancelledError:
            outcome = outcome if self._journal.state is State.FINISHED else "cancelled"
            self._end(Event.CANCELLED)
            raise
        except DuetError as e:
            self._end(Event.FAILED, error=described(e))
            if not self._sink.started:
                raise
            metrics.saw(e)
            await self._sink.end(stream_error(e))
        except BaseException:
            # A fault of ours: the record must not stay open, and what the client gets is the API layer's business.
            self._end(Event.FAILED, error={"status": 500, "code": "internal_error"})
            raise
        finally:
            self._attempt.close()
            metrics.in_flight.dec()
            metrics.requests.labels(self._request.endpoint, outcome).inc()
            metrics.seconds.observe(self._parts.clock.monotonic() - self._journal.began)

    async def _answer(self) -> Ending:
        self._retries.budget.earn(self._parts.clock.monotonic())
        while True:
            try:
                ending = await self._attempt.go()
            except EngineError as error:
                if isinstance(error, EngineRefused) and error.status < 500:
                    self._parts.fleet.succeeded(error.engine)  # it works: it is the request that it refuses
                part = part_of(error, self._prefill)
                if part is not Part.DECODE or self._prefill_is_there():
                    self._suspicion.raised(error, self._prefill, midway=self._sink.started)
                route = None if self._sink.started else self._next(part, error)
                if route is None:
                    raise
                await self._begin_again(part, error, route)
            else:
                self._suspicion.answered(self._attempt.route.decode.id)
                return ending

    @property
    def _prefill(self) -> str | None:
        prefill = self._attempt.route.prefill
        return prefill.id if prefill is not None else None

    def _prefill_is_there(self) -> bool:
        """A decode whose prefill has died fails too, after a while, because the KV does not come."""
        return self._prefill is None or self._parts.fleet.is_up(self._prefill)

    def _next(self, part: Part, error: EngineError) -> Route | None:
        """The next attempt's engines; None if there is to be none."""
        retries, number = self._retries, self._attempt.route.attempt
        policy = retries.policies.of(part)
        if policy is Policy.FAIL or not may_help(error) or number >= retries.policies.attempts:
            return None
        if not isinstance(error, HandoffExpired):
            self._tried |= {error.engine}
        for tried in self._untried(part, error):
            try:
                route = self._route(part, policy, number + 1, tried)
            except NoRoutableEngine:
                continue
            if retries.budget.spend(self._parts.clock.monotonic()):
                return route
            self._parts.metrics.retries_denied.inc()
            return None
        return None

    def _untried(self, part: Part, error: EngineError) -> Iterator[frozenset[str]]:
        """Which engines the next attempt must do without: the best choice first, then what is left where it leaves
        nobody for a leg."""
        yield self._tried
        if may_pass(error):
            yield frozenset()
        if part is Part.DECODE and self._prefill is not None and not is_the_engines(error):
            self._undecodable |= {self._prefill}
            yield self._tried - {error.engine} | self._undecodable

    def _route(self, part: Part, policy: Policy, number: int, tried: frozenset[str]) -> Route:
        router, unsplit = self._retries.router, self._attempt.route.unsplit
        if policy is Policy.LOCAL:
            unsplit = UNSPLIT_AFTER[part]
        if unsplit is not None:
            return router.whole(self._request, unsplit, number, tried)
        return router.split(self._request, number, tried)

    async def _begin_again(self, part: Part, error: EngineError, route: Route) -> None:
        """Closes the books of the attempt that failed and opens those of the next."""
        metrics, record = self._parts.metrics, self._journal.record
        log.info("request %s, attempt %d: %s; trying again", record.id, route.attempt - 1, error.message)
        metrics.retries.labels(part.value).inc()
        if route.unsplit is not None and self._attempt.route.unsplit is None:
            metrics.unsplit.labels(route.unsplit).inc()
        loads = loads_of(record.id, route, self._parts.clock.now() + self._retries.load_ttl)
        self._attempt.do(self._journal.begin_again(route, loads))
        self._attempt.close()
        for load in loads.values():
            self._parts.fleet.enter(load.engine, load.request_id)
        self._attempt = Attempt(self._parts, self._request, self._sink, self._journal, route, self._ask)
        await asyncio.sleep(FIRST_PAUSE * 2 ** (route.attempt - 2) * self._retries.jitter())
        self._journal.fire(Event.DECODE_SENT if route.prefill is None else Event.PREFILL_SENT)

    def _end(self, event: Event, **fields: Any) -> None:
        """The last transition; what goes wrong while the last bytes leave comes after it, and changes nothing."""
        if not self._journal.live:
            return
        if self._attempt.first_byte_at is not None:
            fields["timings"] = {"first_byte": self._attempt.first_byte_at}
        self._attempt.do(self._journal.fire(event, **fields))
