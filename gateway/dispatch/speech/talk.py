"""One call of a Talker: `POST /v1/speech`, whose answer tells where the codes are and how many there are by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from common.engine import Engine
from common.errors import DuetError, EngineBroken
from gateway.dispatch.speech.ask import MAX_FRAMES
from gateway.transport.port import Deadlines, EngineClient, ReplyStream
from gateway.wire import EventStream, refusal
from gateway.wire.sse import payloads

PATH = "/v1/speech"


class _Event(msgspec.Struct):
    type: str
    codes: str = ""
    frames: Annotated[int, Meta(ge=0, le=MAX_FRAMES)] = 0


_decode = msgspec.json.Decoder(_Event).decode


class Talk:
    """A call that has begun: `codes` is the reference of its stream of codes, `ended` gives the number of frames once
    all are made, or raises EngineError. `close` ends it at once, waits for nothing, and may be called
    again."""

    def __init__(
        self,
        engine: Engine,
        reply: ReplyStream,
        codes: str,
        rest: AsyncGenerator[_Event, None],
        told: Callable[[int], None],
    ) -> None:
        self.engine = engine
        self.codes = codes
        self._reply = reply
        self._told = told
        self.ended = asyncio.create_task(self._follow(rest))
        self.ended.add_done_callback(_seen)

    @classmethod
    async def begin(
        cls,
        client: EngineClient,
        engine: Engine,
        name: str,
        body: Mapping[str, Any],
        deadlines: Deadlines,
        told: Callable[[int], None] = lambda frames: None,
    ) -> Talk:
        """`name` is the call's id; `told` is called with how many frames there are by now, whenever there are more.
        Returns when the Talker knows the prompt. Raises EngineError."""
        reply = await client.post(
            engine, PATH, msgspec.json.encode(body), headers={"x-request-id": name}, deadlines=deadlines
        )
        events = _events(engine, reply)
        try:
            if reply.status != 200:
                raise refusal(engine.id, reply.status, await reply.read(), reply.headers.get("retry-after"))
            first = await anext(events, None)
            if first is None or first.type != "started":
                raise EngineBroken(f"Talker {engine.id} began with {first}; expected started", engine=engine.id)
            _check(engine, first.codes)
        except BaseException:
            reply.close()
            await events.aclose()
            raise
        return cls(engine, reply, first.codes, events, told)

    def close(self) -> None:
        self._reply.close()
        self.ended.cancel()

    async def _follow(self, rest: AsyncGenerator[_Event, None]) -> int:
        try:
            async with aclosing(rest) as events:
                frames = 0
                async for event in events:
                    if event.frames > frames:
                        frames = event.frames
                        self._told(frames)
                    if event.type == "done":
                        return event.frames
            raise EngineBroken(f"Talker {self.engine.id} ended its speech without a last word", engine=self.engine.id)
        finally:
            self._reply.close()


def _check(engine: Engine, codes: str) -> None:
    from common.channel.reference import Reference  # needs pyzmq, of duet[audio]: only where there is speech

    try:
        Reference.parse(codes)
    except DuetError as e:
        raise EngineBroken(
            f"Talker {engine.id} says that its codes are at none: {e.message}", engine=engine.id
        ) from None


def _seen(ended: asyncio.Task[int]) -> None:
    """What nobody waits for any more is no fault."""
    if not ended.cancelled():
        ended.exception()


async def _events(engine: Engine, reply: ReplyStream) -> AsyncGenerator[_Event, None]:
    """Raises EngineError: what the Talker says went wrong, or a stream that breaks off."""
    stream = EventStream(engine.id)
    async for chunk in reply.chunks():
        for payload in payloads(stream.feed(chunk)):
            if payload.strip() == b"[DONE]":
                return
            try:
                yield _decode(payload)
            except msgspec.DecodeError as e:
                raise EngineBroken(f"Talker {engine.id} sent an event that is none: {e}", engine=engine.id) from None
        if stream.error is not None:
            raise stream.error
