"""One attempt of one request: prefill, handoff, decode. It fires what it passes; how it ends is `Serving`'s to say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from common.clock import Clock
from common.connectors import Connector
from common.connectors.base import Handoff, HandoffContext, Order, PrefillReply
from common.engine import Engine
from common.errors import EngineBroken, EngineError, HandoffExpired
from common.ids import leg_id
from common.tasks import end
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.handoffs import Abandoned, UsedHandoffs
from gateway.dispatch.journal import Journal
from gateway.dispatch.pulse import Pulse
from gateway.dispatch.relay import Ending, relay_stream, relay_unary
from gateway.dispatch.route import Route
from gateway.dispatch.sink import Sink
from gateway.dispatch.speech import Ask, Desk, Speaking
from gateway.fleet import Fleet
from gateway.lifecycle import Effect, Event
from gateway.telemetry import Metrics
from gateway.transport.port import Deadlines, EngineClient, ReplyStream, Sent
from gateway.wire import (
    ClientRequest,
    Prefilled,
    conditioned,
    decode_body,
    parse_prefill_reply,
    prefill_body,
    refusal,
)

PREFILL_GRACE = 0.5
"""Seconds that an answer waits for the reply of a prefill that ran beside it: the KV has come, so the reply is due."""
ARRIVES_WITHIN = 30.0
"""Seconds after prefill's reply in which KV, that decode fetches at once, may still be on its way to a busy one."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every attempt needs and none owns."""

    client: EngineClient
    connector: Connector
    fleet: Fleet
    clock: Clock
    metrics: Metrics
    deadlines: LegDeadlines
    used: UsedHandoffs
    pulse: Pulse
    abandoned: Abandoned
    desk: Desk


class Attempt:
    """`first_byte_at` is when decode's answer began to leave, in epoch seconds; None until then. `ask` is None where
    the answer is not spoken."""

    def __init__(
        self, parts: Parts, request: ClientRequest, sink: Sink, journal: Journal, route: Route, ask: Ask | None = None
    ) -> None:
        self._parts = parts
        self._request = request
        self._sink = sink
        self._journal = journal
        self.route = route
        self._ask = ask
        self._ctx = route.context(journal.record.id, parts.clock.now())
        self._open: list[ReplyStream] = []
        self._handoff: Handoff | None = None
        self._waits = False
        """Whether KV may wait at prefill: from prefill's reply until decode says something. Its headers say nothing,
        they may leave before it takes the request up; and KV that is released once more is none the worse for it."""
        self._prefill_sent = Sent()
        self._prefilled: Prefilled | None = None
        self._prefill: asyncio.Task[None] | None = None
        self._prefilled_at: float | None = None
        self.first_byte_at: float | None = None

    async def go(self) -> Ending:
        """Runs both legs; what the ending still has to say is not sent yet. Raises DuetError."""
        if self._ctx is None:
            return await self._decode(None)
        if self._parts.connector.order is Order.SEQUENTIAL:
            return await self._one_after_the_other(self._ctx)
        return await self._both_at_once(self._ctx)

    def do(self, effects: Sequence[Effect]) -> None:
        """What a transition asks for."""
        for effect in effects:
            if effect is Effect.CLOSE_LEGS:
                self.close()
            elif effect is Effect.ABANDON_HANDOFF:
                self._abandon()

    def close(self) -> None:
        """Ends the calls that are open. Safe to call again."""
        for reply in self._open:
            reply.close()
        self._open.clear()

    async def _one_after_the_other(self, ctx: HandoffContext) -> Ending:
        sent = self._parts.clock.now()
        try:
            prefilled = await self._call_prefill(ctx)
            arrived = self._parts.pulse.earliest_arrival(sent)
            reply = PrefillReply(prefilled.params, prefilled.prompt_tokens, arrived)
            handoff = self._parts.connector.handoff(ctx, reply)
            self._parts.used.use(self._parts.connector.identity(handoff), ctx.prefill.id)
        except BaseException as e:
            if self._may_lie(e):
                self._parts.abandoned.may_lie_unnamed()
            raise
        self._has_prefilled(ctx, handoff, prefilled)
        return await self._decode(handoff)

    async def _both_at_once(self, ctx: HandoffContext) -> Ending:
        """The first failure ends both. A whole answer waits for no prefill."""
        handoff = self._parts.connector.handoff(ctx, None)
        prefill = self._prefill = asyncio.create_task(self._prefill_beside(ctx, handoff))
        decode = asyncio.create_task(self._decode(handoff))
        lost = asyncio.create_task(self._until_lost(ctx.prefill))
        running: set[asyncio.Task[Any]] = {prefill, decode, lost}
        try:
            while True:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if decode in done:
                    return decode.result()
                for leg in done:
                    leg.result()
        finally:
            await end(prefill, decode, lost)
            cut = prefill.cancelled()
            if self.first_byte_at is None and self._may_lie(asyncio.CancelledError() if cut else prefill.exception()):
                self._parts.abandoned.may_lie_unnamed()

    async def _until_lost(self, prefill: Engine) -> None:
        """Raises EngineBroken when prefill is lost while its KV may still be on its way: decode would wait for it in
        silence. A stream that has begun has its KV; a whole answer shows no beginning, so there time must tell."""
        await self._parts.fleet.lost(prefill.id).wait()
        now, since = self._parts.clock.monotonic(), self._prefilled_at
        arrived = not self._request.stream and since is not None and now - since > ARRIVES_WITHIN
        if self.first_byte_at is None and not arrived:
            raise EngineBroken(
                f"prefill engine {prefill.id} was lost while decode waited for its KV", engine=prefill.id
            )

    async def _prefill_beside(self, ctx: HandoffContext, handoff: Handoff) -> None:
        prefilled = await self._call_prefill(ctx)
        if self._journal.live:
            self._has_prefilled(ctx, handoff, prefilled)

    async def _call_prefill(self, ctx: HandoffContext) -> Prefilled:
        parts = self._parts
        body = prefill_body(self._asked_of("prefill"), parts.connector.prefill_params(ctx))
        sent = parts.clock.monotonic()
        headers = parts.connector.prefill_headers(ctx)
        reply = await self._call(
            ctx.prefill, body, "prefill", parts.deadlines.prefill, headers, sent=self._prefill_sent
        )
        whole = await reply.read()
        parts.metrics.prefill.observe(parts.clock.monotonic() - sent)
        if reply.status != 200:
            raise refusal(ctx.prefill.id, reply.status, whole, reply.headers.get("retry-after"))
        return parse_prefill_reply(ctx.prefill.id, whole)

    def _has_prefilled(self, ctx: HandoffContext, handoff: Handoff, prefilled: Prefilled) -> None:
        self._parts.fleet.succeeded(ctx.prefill.id)
        self._prefilled, self._handoff = prefilled, handoff
        self._waits = self.first_byte_at is None
        self._prefilled_at = self._parts.clock.monotonic()
        self.do(
            self._journal.fire(Event.PREFILL_DONE, handoff=dict(handoff.params), handoff_expires_at=handoff.expires_at)
        )

    async def _decode(self, handoff: Handoff | None) -> Ending:
        if self._ask is None:
            return await self._relay(await self._call_decode(handoff), None)
        desk, request = self._parts.desk, self._request
        async with desk.speaking(request, self._ask, self._journal, self._sink, self.route) as speaking:
            return await self._relay(await self._call_decode(handoff, speaking.fields), speaking)

    async def _relay(self, reply: ReplyStream, speaking: Speaking | None) -> Ending:
        engine, begins, cached = self.route.decode, self._begins, self._cached_tokens
        relay = relay_stream if self._request.stream else relay_unary
        if speaking is not None:
            return await speaking.relay(engine, reply, begins, cached)
        return await relay(engine, reply, self._sink, begins, cached)

    async def _call_decode(
        self, handoff: Handoff | None, told: Mapping[str, Any] = MappingProxyType({})
    ) -> ReplyStream:
        """`told` is what the record says of it beside."""
        engine, deadlines = self.route.decode, self._parts.deadlines
        params, left = self._decode_params(handoff)
        ids = self._prefilled.prompt_token_ids if self._prefilled is not None else None
        body = decode_body(self._asked_of("decode"), params, ids)
        if self._ctx is not None:  # an unsplit request is decoding from its start
            self.do(self._journal.fire(Event.DECODE_SENT, **told))
        elif told:
            self._journal.fire(Event.SPEECH_ASKED, **told)
        bounds = deadlines.decode_stream if self._request.stream else deadlines.decode_unary
        if left is not None:
            bounds = replace(bounds, connect=min(bounds.connect, left))
        reply = await self._call(engine, body, "decode", bounds)
        if reply.status != 200:
            raise refusal(engine.id, reply.status, await reply.read(), reply.headers.get("retry-after"))
        return reply

    def _asked_of(self, leg: str) -> ClientRequest:
        """What a leg is sent, before a connector's parameters."""
        if self._ask is None:
            return self._request
        id_, attempt = self._journal.record.id, self.route.attempt
        return conditioned(self._request, leg_id(id_, attempt, leg), leg_id(id_, attempt, "speech"))

    def _decode_params(self, handoff: Handoff | None) -> tuple[Mapping[str, Any] | None, float | None]:
        """With the seconds that are left of the handoff. Raises HandoffExpired."""
        if handoff is None or self._ctx is None:
            return None, None
        left = handoff.expires_at - self._parts.clock.now()
        if left <= 0:
            raise HandoffExpired(
                f"the handoff ran out {-left:.1f} s ago, before decode could be sent: the connector's lease is "
                f"{self._parts.connector.lease:g} s",
                engine=self._ctx.prefill.id,
            )
        return self._parts.connector.decode_params(self._ctx, handoff), left

    async def _call(
        self,
        engine: Engine,
        body: bytes,
        leg: str,
        deadlines: Deadlines,
        more: Mapping[str, str] = MappingProxyType({}),
        *,
        sent: Sent | None = None,
    ) -> ReplyStream:
        name = "kv" if self._parts.connector.one_request_id else leg
        headers = {**more, "x-request-id": leg_id(self._journal.record.id, self.route.attempt, name)}
        reply = await self._parts.client.post(
            engine, self._request.endpoint, body, headers=headers, deadlines=deadlines, sent=sent
        )
        self._open.append(reply)
        return reply

    def _begins(self) -> None:
        """Right before the first byte leaves."""
        now, metrics = self._parts.clock.monotonic(), self._parts.metrics
        self.first_byte_at = self._parts.clock.now()
        self._waits = False
        self._parts.fleet.succeeded(self.route.decode.id)
        (metrics.ttft_unsplit if self._ctx is None else metrics.ttft_split).observe(now - self._journal.began)
        if self._prefilled_at is not None:
            metrics.handoff.observe(now - self._prefilled_at)

    async def _cached_tokens(self) -> int | None:
        """Prefill's figure: decode counts what it was handed as cached. None if there is none to be had."""
        if self._prefilled is None and self._prefill is not None:
            await asyncio.wait({self._prefill}, timeout=PREFILL_GRACE)
        return self._prefilled.cached_tokens if self._prefilled is not None else None

    def _abandon(self) -> None:
        if self._waits and self._handoff is not None and self._ctx is not None:
            self._waits = False
            self._parts.abandoned.take(
                self._journal.record.id, self.route.attempt, self._request.model, self._ctx, self._handoff
            )

    def _may_lie(self, error: BaseException | None) -> bool:
        """Whether a prefill that ended so may have left KV that nobody can name. One that is cut may be at its end,
        unless it was not even sent."""
        return error is not None and (error.worked if isinstance(error, EngineError) else self._prefill_sent.maybe)
