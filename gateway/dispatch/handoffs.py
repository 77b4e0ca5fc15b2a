"""Handoffs that nobody will use: counted, released where the connector can, shown until their lease is over."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict

from common.clock import Clock
from common.connectors import Connector
from common.connectors.base import CancelPolicy, Handoff, HandoffContext
from common.engine import Engine, Role
from common.errors import EngineError, HandoffInvalid, NoRoutableEngine
from common.ids import leg_id
from common.tasks import end
from gateway.fleet import Fleet
from gateway.routing import Picker, Wish
from gateway.telemetry import Metrics
from gateway.transport.port import Deadlines, EngineClient
from gateway.wire import RELEASE_PATH, release_body

WITHIN = Deadlines(connect=2.0, headers=5.0, idle=5.0)
"""For a call that an engine answers at once, or not at all."""
FREED_BY = frozenset({200, 400})
"""A decode that is refused in vLLM's handler frees prefill's blocks; one that ran after all has fetched them."""
REMEMBERED = 65536
"""Handoffs whose use is remembered; each attempt makes one."""


class UsedHandoffs:
    """Each handoff may be used once: prefill frees its blocks when they were fetched, and then they are another's."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, None] = OrderedDict()

    def use(self, identity: str | None, engine: str) -> None:
        """Raises HandoffInvalid for one that was used before. `engine` is who made it."""
        if identity is None:
            return
        if identity in self._used:
            raise HandoffInvalid(
                f"prefill returned the handoff {identity!r:.120} that it had returned before; expected a new one",
                engine=engine,
            )
        self._used[identity] = None
        if len(self._used) > REMEMBERED:
            self._used.popitem(last=False)


class Abandoned:
    """Takes what an ended attempt leaves behind at prefill."""

    def __init__(
        self, client: EngineClient, connector: Connector, fleet: Fleet, picker: Picker, clock: Clock, metrics: Metrics
    ) -> None:
        self._client = client
        self._connector = connector
        self._fleet = fleet
        self._picker = picker
        self._clock = clock
        self._metrics = metrics
        self._held: dict[int, float] = {}
        """When each lease ends of what is not known to be released, in that order."""
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.held.set_function(self._count_held)

    def take(self, request_id: str, attempt: int, model: str, ctx: HandoffContext, handoff: Handoff) -> None:
        """Returns at once; a release goes on beside it."""
        if not self._connector.carries:
            return
        self._metrics.abandoned.inc()
        held = self._hold()
        if self._connector.cancel is CancelPolicy.REFUSED_DECODE:
            task = asyncio.create_task(self._release(held, leg_id(request_id, attempt, "release"), model, ctx, handoff))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def may_lie_unnamed(self) -> None:
        """A prefill was cut before its reply came, or replied with a handoff that must not be sent. An engine that was
        in the step that ended it keeps its KV all the same, and what nobody can name nobody can release."""
        if self._connector.carries:
            self._metrics.unnamed.inc()
            self._hold()

    async def drain(self, within: float) -> None:
        """Waits for releases that are under way, for at most `within` seconds."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=within)
            await end(*late)

    def _hold(self) -> int:
        """Counts as held for a whole lease from now: a decode may have made it longer until now. Returns its number."""
        self._forget_ended()
        number = next(self._numbers)
        self._held[number] = self._clock.now() + self._connector.lease
        return number

    async def _release(self, held: int, leg: str, model: str, ctx: HandoffContext, handoff: Handoff) -> None:
        params = self._connector.decode_params(ctx, handoff)
        if params is not None:
            for engine in self._able(model, ctx.decode):
                if await self._refused(engine, leg, release_body(model, params)):
                    self._metrics.released.inc()
                    self._held.pop(held, None)
                    return

    def _able(self, model: str, first: Engine) -> list[Engine]:
        """The decode engine that the handoff was for, and another: any of them can refuse. Where there is no other, the
        same once more: it may only have stood still."""
        wish = Wish(Role.DECODE, model, tried=frozenset({first.id}))
        try:
            return [first, self._picker.pick(self._fleet.candidates(), wish).engine]
        except NoRoutableEngine:
            return [first, first]

    async def _refused(self, engine: Engine, leg: str, body: bytes) -> bool:
        try:
            reply = await self._client.post(engine, RELEASE_PATH, body, headers={"x-request-id": leg}, deadlines=WITHIN)
            try:
                await reply.read()
            finally:
                reply.close()
        except EngineError:
            return False
        return reply.status in FREED_BY

    def _count_held(self) -> float:
        self._forget_ended()
        return len(self._held)

    def _forget_ended(self) -> None:
        """Those whose lease is over."""
        now = self._clock.now()
        for number in list(itertools.takewhile(lambda n: self._held[n] <= now, self._held)):
            del self._held[number]
