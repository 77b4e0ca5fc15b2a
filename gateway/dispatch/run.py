"""One attempt of one request: prefill, handoff, decode, and one way out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from common.clock import Clock
from common.connectors import Connector
from common.connectors.base import Handoff, HandoffContext, Order, PrefillReply
from common.engine import Engine
from common.errors import DuetError, HandoffInvalid
from common.ids import leg_id
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.journal import Journal
from gateway.dispatch.relay import relay_stream, relay_unary
from gateway.dispatch.sink import Sink
from gateway.lifecycle import Effect, Event, State
from gateway.telemetry import Metrics
from gateway.transport.port import Deadlines, EngineClient, ReplyStream
from gateway.wire import ClientRequest, Prefilled, decode_body, parse_prefill_reply, prefill_body, refusal
from gateway.wire.errors import stream_error


@dataclass(frozen=True, slots=True)
class Parts:
    """What every run needs and none owns."""

    client: EngineClient
    connector: Connector
    clock: Clock
    metrics: Metrics
    deadlines: LegDeadlines


class Run:
    """`ctx` is None where the request runs unsplit, on decode alone."""

    def __init__(
        self,
        parts: Parts,
        request: ClientRequest,
        sink: Sink,
        journal: Journal,
        decode: Engine,
        ctx: HandoffContext | None,
    ) -> None:
        self._parts = parts
        self._request = request
        self._sink = sink
        self._journal = journal
        self._decode_engine = decode
        self._ctx = ctx
        self._open: list[ReplyStream] = []
        self._prefilled_at: float | None = None
        self._first_byte_at: float | None = None
        self._started = parts.clock.monotonic()

    async def go(self) -> None:
        """Runs to the end. Raises DuetError if nothing was sent to the client yet."""
        metrics, endpoint = self._parts.metrics, self._request.endpoint
        outcome = "failed"
        metrics.in_flight.inc()
        try:
            await self._legs()
            outcome = "finished"
        except asyncio.CancelledError:
            outcome = "cancelled"
            self._end(Event.CANCELLED)
            raise
        except DuetError as e:
            if self._journal.state is State.FINISHED:  # prefill, beside a decode that needs it no more
                outcome = "finished"
                return
            self._end(Event.FAILED, error=described(e))
            if not self._sink.started:
                raise
            metrics.errors.labels(str(e.code)).inc()
            await self._sink.end(stream_error(e))
        except BaseException:
            # A fault of ours: the record must not stay open, and what the client gets is the API layer's business.
            self._end(Event.FAILED, error={"status": 500, "code": "internal_error"})
            raise
        finally:
            self._close_legs()
            metrics.in_flight.dec()
            metrics.requests.labels(endpoint, outcome).inc()
            metrics.seconds.observe(self._parts.clock.monotonic() - self._started)

    async def _legs(self) -> None:
        if self._ctx is None:
            await self._decode(None, None)
        elif self._parts.connector.order is Order.SEQUENTIAL:
            prefilled = await self._prefill(self._ctx)
            reply = PrefillReply(prefilled.params, prefilled.prompt_tokens, self._parts.clock.now())
            handoff = self._parts.connector.handoff(self._ctx, reply)
            self._prefilled(handoff)
            await self._decode(handoff, prefilled)
        else:
            await self._concurrently(self._ctx)

    async def _concurrently(self, ctx: HandoffContext) -> None:
        """Both legs at once; the first failure ends both."""
        handoff = self._parts.connector.handoff(ctx, None)
        try:
            async with asyncio.TaskGroup() as legs:
                legs.create_task(self._prefill_beside(ctx, handoff))
                legs.create_task(self._decode(handoff, None))
        except BaseExceptionGroup as group:
            raise first_of(group) from group

    async def _prefill_beside(self, ctx: HandoffContext, handoff: Handoff) -> None:
        await self._prefill(ctx)
        if self._journal.live:
            self._prefilled(handoff)

    async def _prefill(self, ctx: HandoffContext) -> Prefilled:
        body = prefill_body(self._request, self._parts.connector.prefill_params(ctx))
        sent = self._parts.clock.monotonic()
        headers = self._parts.connector.prefill_headers(ctx)
        reply = await self._call(ctx.prefill, body, "prefill", self._parts.deadlines.prefill, headers)
        whole = await reply.read()
        self._parts.metrics.prefill.observe(self._parts.clock.monotonic() - sent)
        if reply.status != 200:
            raise refusal(ctx.prefill.id, reply.status, whole, reply.headers.get("retry-after"))
        return parse_prefill_reply(ctx.prefill.id, whole)

    def _prefilled(self, handoff: Handoff) -> None:
        self._prefilled_at = self._parts.clock.monotonic()
        self._do(
            self._journal.fire(Event.PREFILL_DONE, handoff=dict(handoff.params), handoff_expires_at=handoff.expires_at)
        )

    async def _decode(self, handoff: Handoff | None, prefilled: Prefilled | None) -> None:
        params = self._decode_params(handoff)
        body = decode_body(self._request, params, prefilled.prompt_token_ids if prefilled is not None else None)
        if self._ctx is not None:  # an unsplit request was admitted as decoding
            self._do(self._journal.fire(Event.DECODE_SENT))
        deadlines = self._parts.deadlines
        bounds = deadlines.decode_stream if self._request.stream else deadlines.decode_unary
        reply = await self._call(self._decode_engine, body, "decode", bounds)
        relay = relay_stream if self._request.stream else relay_unary
        ending = await relay(self._decode_engine, reply, self._sink, self._first_byte)
        self._end(Event.COMPLETED, usage=ending.usage)
        await self._sink.end(ending.tail)

    def _decode_params(self, handoff: Handoff | None) -> Mapping[str, Any] | None:
        if handoff is None or self._ctx is None:
            return None
        now = self._parts.clock.now()
        if now >= handoff.expires_at:
            raise HandoffInvalid(
                f"the handoff ran out {now - handoff.expires_at:.1f} s ago, before decode could be sent: prefill took "
                f"longer than the connector's lease of {self._parts.connector.lease:g} s allows",
                engine=self._ctx.prefill.id,
            )
        return self._parts.connector.decode_params(self._ctx, handoff)

    async def _call(
        self,
        engine: Engine,
        body: bytes,
        leg: str,
        deadlines: Deadlines,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> ReplyStream:
        record = self._journal.record
        name = "kv" if self._parts.connector.one_request_id else leg
        headers = {**more, "x-request-id": leg_id(record.id, record.attempt, name)}
        reply = await self._parts.client.post(
            engine, self._request.endpoint, body, headers=headers, deadlines=deadlines
        )
        self._open.append(reply)
        return reply

    def _first_byte(self) -> None:
        now, metrics = self._parts.clock.monotonic(), self._parts.metrics
        self._first_byte_at = self._parts.clock.now()
        (metrics.ttft_unsplit if self._ctx is None else metrics.ttft_split).observe(now - self._started)
        if self._prefilled_at is not None:
            metrics.handoff.observe(now - self._prefilled_at)

    def _end(self, event: Event, **fields: Any) -> None:
        """The last transition; what goes wrong while the last bytes leave comes after it, and changes nothing."""
        if not self._journal.live:
            return
        if self._first_byte_at is not None:
            fields["timings"] = {"first_byte": self._first_byte_at}
        self._do(self._journal.fire(event, **fields))

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if effect is Effect.CLOSE_LEGS:
                self._close_legs()
            elif effect is Effect.ABANDON_HANDOFF:
                self._parts.metrics.abandoned.inc()

    def _close_legs(self) -> None:
        for reply in self._open:
            reply.close()
        self._open.clear()


def described(error: DuetError) -> dict[str, Any]:
    """An error as the record keeps it."""
    return {"status": error.status, "type": error.type, "code": error.code, "message": error.message}


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group, however deep."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
