"""From decode to the client: a stream event by event as it comes, or a whole answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common.engine import Engine
from common.errors import EngineBroken
from gateway.dispatch.sink import Sink
from gateway.transport.port import ReplyStream
from gateway.wire import EventStream, says_nothing, unary_answer
from gateway.wire.errors import DONE

_SSE = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # asks proxies in between not to collect what must flow
)

JSON = ((b"content-type", b"application/json"),)

_USAGE = b'"usage"'
MOST_HELD = 2**18
"""Bytes of a stream that may say nothing yet and are held back all the same."""

Started = Callable[[], None]
"""Called once, right before the first byte leaves."""
CachedTokens = Callable[[], Awaitable[int | None]]
"""How many tokens of the prompt prefill had cached; None if the answer is right as it is."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a good answer ended; `tail` is what still has to be sent, as the last bytes."""

    usage: Mapping[str, Any] | None
    tail: bytes = b""


async def relay_stream(
    engine: Engine, reply: ReplyStream, sink: Sink, started: Started, cached_tokens: CachedTokens
) -> Ending:
    """Streams an answer until `[DONE]`; an engine that leaves that out after a whole answer gets it added.

    What says nothing yet (the chunk that names a role) waits for what does: vLLM sends it even ahead of an error, and
    until a byte has left, another attempt can still be made.

    Raises what the engine says went wrong, wherever in the stream, and EngineBroken for a stream that ends early or
    has nothing in it. Whoever catches it looks at `sink.started` to know whether a status can still be sent.
    """
    events = EventStream(engine.id)
    held = tail = b""
    async for chunk in reply.chunks(every=False):
        if events.cached_tokens is None and _USAGE in tail + chunk:
            events.cached_tokens = await cached_tokens()
        tail = chunk[-len(_USAGE) :]
        ready = events.feed(chunk)
        if events.spoke:
            reply.said()
        if events.done and not events.answered:
            raise EngineBroken(f"engine {engine.id} ended its stream and said nothing in it", engine=engine.id)
        if not sink.started:
            held += ready  # what was held before says nothing, so only what is new is asked
            if not held or (not events.done and len(held) <= MOST_HELD and says_nothing(ready)):
                if events.error is not None:
                    raise events.error
                continue
            ready, held = held, b""
            started()
            await sink.start(200, _SSE)
        if events.done:
            return Ending(events.usage, ready)
        if ready:
            await sink.write(ready)
        if events.error is not None:
            raise events.error
    if events.complete:
        if not sink.started:
            started()
            await sink.start(200, _SSE)
        return Ending(events.usage, held + DONE)
    raise events.broken_off


async def relay_unary(
    engine: Engine, reply: ReplyStream, sink: Sink, started: Started, cached_tokens: CachedTokens
) -> Ending:
    """Raises what the engine says went wrong; nothing was sent then."""
    answer = unary_answer(engine.id, await reply.read(), await cached_tokens())
    started()
    length = str(len(answer.body)).encode()
    await sink.start(200, (*JSON, (b"content-length", length)))
    return Ending(answer.usage, answer.body)
