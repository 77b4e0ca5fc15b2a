"""A whole answer: text and sound in one body, once both are there.

The sound is kept until then; the longest speech that may be asked for has 16 MB. Without it there is no answer: a body
cannot say both that it is good and that it is not, and the client may ask for the text alone.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from common.engine import Engine
from gateway.audio import encode
from gateway.dispatch.relay import JSON, CachedTokens, Ending, Started
from gateway.dispatch.speech.speaking import Speaking
from gateway.transport.port import ReplyStream
from gateway.wire import unary_answer
from gateway.wire.spoken import Audio, said, with_audio


class Whole(Speaking):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pcm = bytearray()

    async def relay(self, engine: Engine, reply: ReplyStream, started: Started, cached_tokens: CachedTokens) -> Ending:
        answer = unary_answer(engine.id, await reply.read(), await cached_tokens())
        self._text_is_out()
        told = said(engine.id, answer.body)
        if told.calls_tools:
            await self._hush()
        else:
            self._keep(told.text)
        failed = await self._settle()
        if failed is not None:
            raise failed
        body, usage = answer.body, answer.usage
        if not told.calls_tools:
            encoders, pcm, kind = self._parts.encoders, bytes(self._pcm), self._ask.format
            sound = await asyncio.get_running_loop().run_in_executor(encoders, encode, pcm, kind)
            audio = Audio(self._audio_id, sound, told.text, await self._kept_until(), self._speech.frames)
            body, usage = with_audio(body, usage, audio)
        started()
        await self._sink.start(200, (*JSON, (b"content-length", str(len(body)).encode())))
        return Ending(usage, body)

    async def _hear(self) -> None:
        async with aclosing(self._speech.pcm()) as sound:
            async for part in sound:
                if not self._pcm:
                    self._begins()
                self._parts.metrics.audio_bytes.inc(len(part))
                self._pcm += part
