"""From decode to the client: a stream event by event as it comes, or a whole answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common.engine import Engine
from common.errors import EngineBroken
from gateway.dispatch.sink import Sink
from gateway.transport.port import ReplyStream
from gateway.wire import EventStream, refusal, unary_answer

_SSE = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # asks proxies in between not to collect what must flow
)

Started = Callable[[], None]
"""Called once, right before the first byte leaves."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a good answer ended; `tail` is what still has to be sent, as the last bytes."""

    usage: Mapping[str, Any] | None
    tail: bytes = b""


async def relay_stream(engine: Engine, reply: ReplyStream, sink: Sink, started: Started) -> Ending:
    """Streams an answer until `[DONE]`.

    Raises what the engine refused with, under whatever status and wherever in the stream, and EngineBroken for a
    stream that ends early. Whoever catches it looks at `sink.started` to know whether a status can still be sent.
    """
    await _expect_ok(engine, reply)
    events = EventStream(engine.id)
    async for chunk in reply.chunks():
        ready = events.feed(chunk)
        if ready and not sink.started:
            started()
            await sink.start(200, _SSE)
        if events.done:
            return Ending(events.usage, ready)
        if ready:
            await sink.write(ready)
        if events.error is not None:
            raise events.error
    raise EngineBroken(f"engine {engine.id} ended its stream without [DONE]", engine=engine.id)


async def relay_unary(engine: Engine, reply: ReplyStream, sink: Sink, started: Started) -> Ending:
    """Raises what the engine refused with; nothing was sent then."""
    await _expect_ok(engine, reply)
    answer = unary_answer(engine.id, await reply.read())
    started()
    length = str(len(answer.body)).encode()
    await sink.start(200, ((b"content-type", b"application/json"), (b"content-length", length)))
    return Ending(answer.usage, answer.body)


async def _expect_ok(engine: Engine, reply: ReplyStream) -> None:
    if reply.status != 200:
        raise refusal(engine.id, reply.status, await reply.read(), reply.headers.get("retry-after"))
