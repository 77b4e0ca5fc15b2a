"""A streamed answer: sound goes between the events of the text, as each comes.

Both write to one connection, whole events in turn, and wait until it can take more: a slow client holds back the
engines of both, and nothing gathers here but one part of sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from common.engine import Engine
from gateway.audio import Cutter
from gateway.dispatch.relay import CachedTokens, Ending, Started, relay_stream
from gateway.dispatch.speech.speaking import Speaking
from gateway.transport.port import ReplyStream
from gateway.wire.spoken_stream import SpokenStream


class Streamed(Speaking):
    """Is also the sink that decode's text is relayed into."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._stream = SpokenStream(self._audio_id, include_usage=self._request.include_usage)
        self._opened = asyncio.Event()
        """Set once sound may leave: its id has."""
        self._sounded = False
        self._turn = asyncio.Lock()

    async def relay(self, engine: Engine, reply: ReplyStream, started: Started, cached_tokens: CachedTokens) -> Ending:
        ending = await relay_stream(engine, reply, self, started, cached_tokens)
        self._text_is_out()
        await self.write(ending.tail)
        self._opened.set()
        if self._stream.opened or not self._hushed:
            self._keep(self._stream.transcript)
        failed = await self._settle()
        expires_at = None
        if self._stream.opened or not (failed or self._hushed):
            expires_at = await self._kept_until()
        frames = self._speech.frames if self._sounded or not self._hushed else 0
        tail = self._stream.end(frames, expires_at=expires_at, error=failed)
        if failed is not None:
            self._parts.metrics.errors.labels(str(failed.code)).inc()
        return Ending(self._stream.usage(frames), tail)

    @property
    def started(self) -> bool:
        return self._sink.started

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._sink.start(status, headers)

    async def write(self, body: bytes) -> None:
        """Whole events of decode's stream."""
        ready = self._stream.text(body)
        if self._stream.calls_tools and not self._hushed:
            await self._hush()
        if ready:
            async with self._turn:
                await self._sink.write(ready)
        if self._stream.opened:
            self._opened.set()

    async def end(self, body: bytes = b"") -> None:
        await self._sink.end(body)

    async def _hear(self) -> None:
        cutter, begun = Cutter(), False
        async with aclosing(self._speech.pcm()) as sound:
            async for part in sound:
                self._parts.metrics.audio_bytes.inc(len(part))
                chunks = [*cutter.push(part), cutter.flush()]
                await self._opened.wait()
                if not begun:
                    begun = True
                    self._begins()
                for chunk in filter(None, chunks):
                    await self._say(chunk)
        if rest := cutter.finish():
            await self._say(rest)

    async def _say(self, pcm: bytes) -> None:
        async with self._turn:
            self._sounded = True
            await self._sink.write(self._stream.data(pcm))
