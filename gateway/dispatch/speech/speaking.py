"""One attempt's answer, heard while it is told: what streamed and whole answers have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from common.engine import Engine
from common.errors import NoRoutableEngine, StoreUnavailable
from common.tasks import end
from gateway.dispatch.journal import Journal, described
from gateway.dispatch.relay import CachedTokens, Ending, Started
from gateway.dispatch.sink import Sink
from gateway.dispatch.speech.ask import Ask
from gateway.dispatch.speech.errors import SpeechFailed
from gateway.dispatch.speech.parts import SpeechParts
from gateway.dispatch.speech.speech import Speech
from gateway.lifecycle import Event
from gateway.transport.port import ReplyStream
from gateway.wire import ClientRequest

KEPT_WITHIN = 0.5
"""Seconds behind text and sound in which the transcript may still be on its way to the store."""


class Speaking(ABC):
    """An async context: the speech is asked for as it is entered, whatever is open of it ends as it is left.

    The sound is taken by a task of its own, so that text waits for none of it.
    """

    def __init__(
        self, parts: SpeechParts, request: ClientRequest, ask: Ask, journal: Journal, sink: Sink, speech: Speech
    ) -> None:
        self._parts = parts
        self._request = request
        self._ask = ask
        self._journal = journal
        self._sink = sink
        self._speech = speech
        self._audio_id = f"audio_{parts.ids.request_id()}"
        self._hearing: asyncio.Task[None] | None = None
        self._hushed = False
        self._settled = False
        self._kept: asyncio.Task[bool] | None = None
        self._kept_from = 0.0
        self._forgotten = False

    @property
    def fields(self) -> dict[str, Any]:
        """What the record says of it, for the transition that it begins with."""
        return self._speech.fields

    async def __aenter__(self) -> Self:
        with suppress(NoRoutableEngine):  # said when the sound is taken: the text is none the worse
            self._speech.take_engines()
        self._hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if not self._settled:
            self._parts.metrics.speech.labels("cut").inc()
        try:
            if self._hearing is not None:
                await end(self._hearing)
        finally:  # behind it: until then it may be asking somebody; and also if this is cancelled a second time
            self._speech.close()

    @abstractmethod
    async def relay(self, engine: Engine, reply: ReplyStream, started: Started, cached_tokens: CachedTokens) -> Ending:
        """Decode's answer with its sound. Raises as `relay_stream` and `relay_unary` do; SpeechFailed where that is
        the client's answer."""

    @abstractmethod
    async def _hear(self) -> None:
        """Takes the sound to its end. Raises SpeechFailed."""

    def _text_is_out(self) -> None:
        """Decode has said all, and is free for others while this is spoken."""
        self._speech.text_is_out()
        self._journal.decode_is_done()

    def _begins(self) -> None:
        """The first sound is here."""
        metrics, clock = self._parts.metrics, self._parts.clock
        metrics.first_audio.observe(clock.monotonic() - self._journal.began)
        self._journal.fire(Event.SPEECH_STARTED, timings={"first_audio": clock.now()}, **self._speech.fields)

    async def _hush(self) -> None:
        """The answer calls a tool: nothing more of it is for anybody to hear."""
        self._hushed = True
        if self._hearing is not None:
            await end(self._hearing)
        self._speech.close()

    async def _settle(self) -> SpeechFailed | None:
        """Waits for the end of the sound, and says how it ended to everybody else. What nobody is to hear cannot
        fail."""
        assert self._hearing is not None
        await asyncio.wait({self._hearing})
        failed = None if self._hearing.cancelled() else self._hearing.exception()
        if failed is not None and not isinstance(failed, SpeechFailed):
            raise failed
        if self._hushed:
            failed = None
        self._speech.close()
        self._settled = True
        self._parts.metrics.speech.labels("done" if failed is None else "failed").inc()
        if failed is None:
            self._journal.fire(Event.SPEECH_DONE)
        else:
            self._journal.fire(Event.SPEECH_FAILED, error=described(failed))
        return failed

    def _keep(self, transcript: str) -> None:
        """Begins to write what later messages may refer to, beside all that is still to come. It is seen through
        whatever becomes of the answer: of one that fails the client may know the id, or else nobody does."""
        self._kept_from = self._parts.clock.now()
        self._kept = self._journal.beside(self._write(transcript))

    async def _write(self, transcript: str) -> bool:
        try:
            await self._parts.store.keep_transcript(self._audio_id, transcript, self._parts.audio_ttl)
        except StoreUnavailable:
            if not self._forgotten:
                self._forget()
            return False
        return True

    async def _kept_until(self) -> int:
        """Until when later messages may refer to the answer, in epoch seconds: until now, if it could not be kept, or
        is not yet. An answer that is there waits for no store."""
        assert self._kept is not None
        await asyncio.wait({self._kept}, timeout=KEPT_WITHIN)
        if not self._kept.done():
            self._forget()
        elif self._kept.result():
            return int(self._kept_from + self._parts.audio_ttl)
        return int(self._parts.clock.now())

    def _forget(self) -> None:
        self._forgotten = True
        self._parts.metrics.store_errors.labels("keep").inc()
