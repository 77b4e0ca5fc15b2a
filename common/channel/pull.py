"""The consumer's end: frames of a stream in order, each once, whatever happens to the connection.

It says how many frames it will take, and allows more as it takes them, so a slow consumer is never flooded. When it
has heard nothing for a while it pulls again from the index that it needs next: that heals a lost connection, and tells
a producer that has nothing from one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from types import TracebackType

import zmq
import zmq.asyncio

from common.channel.errors import ChannelError, ProducerLost, StreamFailed
from common.channel.frame import Frame
from common.channel.reference import Reference
from common.channel.streams import WHOLE, End
from common.channel.wire import Drop, Message, More, Pull, from_parts, to_parts

WINDOW = 64
"""Frames that may be on their way."""
RE_ASKS = 3
"""How often it asks again for a frame that the producer passes over, before it gives up."""
LINGER_MS = 500
MAX_SOCKETS = 65_535


class Puller:
    """Pulls streams, in one event loop. `beat` and `lost_after` in seconds: how long it hears nothing before it asks
    again, and before it gives the producer up."""

    def __init__(self, *, beat: float = 1.0, lost_after: float = 10.0, window: int = WINDOW) -> None:
        self._beat = beat
        self._lost_after = lost_after
        self._window = window
        self._context = zmq.asyncio.Context()
        self._context.max_sockets = MAX_SOCKETS

    async def __aenter__(self) -> Puller:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every pull that is still open."""
        self._context.destroy(LINGER_MS)

    async def frames(self, reference: Reference, start: int = 0) -> AsyncGenerator[Frame, None]:
        """Frames from index `start` on. Ends when the stream is whole; raises StreamFailed if it is not, ProducerLost
        if nobody answers, ChannelError for answers that do not bring what was asked for. Close the generator
        (`aclosing`) to stop early: the producer is then told."""
        socket = self._connected(reference)
        pull = _Pull(socket, reference, start, self._window)
        try:
            await pull.ask()
            heard = time.monotonic()
            while not pull.whole:
                if not await socket.poll(int(self._beat * 1000)):
                    silence = time.monotonic() - heard
                    if silence >= self._lost_after:
                        raise ProducerLost(f"{reference}: no answer for {silence:.1f} s, at frame {pull.next}")
                    await pull.ask_again()
                    continue
                message = from_parts([part.buffer for part in await socket.recv_multipart(copy=False)])
                heard = time.monotonic()
                frame = await pull.take(message)
                if frame is not None:
                    yield frame
                    heard = time.monotonic()  # what the consumer did with it is not the producer's silence
        finally:
            if not pull.ended:
                socket.send_multipart(to_parts(Drop(reference.key, release=False)))
            socket.close(LINGER_MS)

    async def release(self, reference: Reference) -> None:
        """Tells the producer that nobody will pull this stream again. If that is lost, its TTL does the same later."""
        socket = self._connected(reference)
        try:
            await socket.send_multipart(to_parts(Drop(reference.key, release=True)))
        finally:
            socket.close(LINGER_MS)

    def _connected(self, reference: Reference) -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.DEALER)
        socket.linger = LINGER_MS
        socket.connect(reference.endpoint)
        return socket


class _Pull:
    """How far one pull has come."""

    def __init__(self, socket: zmq.asyncio.Socket, reference: Reference, start: int, window: int) -> None:
        self.next = start
        self.whole = False
        self.ended = False
        self._socket = socket
        self._reference = reference
        self._window = window
        self._allowed = 0
        self._passed_over = False  # since the last ask: the next frame was left out
        self._ahead = 0  # frames beyond the next one, since it is waited for
        self._asked_again = 0

    async def ask(self) -> None:
        self._allowed = self._window
        await self._send(Pull(self._reference.key, self.next, self._window))

    async def ask_again(self) -> None:
        """Raises ChannelError if the producer has passed over the next frame too often."""
        if self._passed_over:
            if self._asked_again == RE_ASKS:
                raise ChannelError(f"{self._reference}: frame {self.next} did not come, asked again {RE_ASKS} times")
            self._asked_again += 1
            self._passed_over = False
        await self.ask()

    async def take(self, message: Message) -> Frame | None:
        """The frame if it is the one that is needed next. Raises StreamFailed, ChannelError."""
        match message:
            case Frame(index) if index == self.next:
                self.next += 1
                self._passed_over, self._ahead, self._asked_again = False, 0, 0
                self._allowed -= 1
                if self._allowed <= self._window // 2:
                    more = self._window - self._allowed
                    self._allowed += more
                    await self._send(More(self._reference.key, more))
                return message
            case Frame(index) if index > self.next:  # some were lost with a connection
                self._passed_over = True
                self._ahead += 1
                if self._ahead % self._window == 1 % self._window:  # the others of a window were on their way already
                    await self.ask_again()
            case End(frames, reason) if reason == WHOLE and frames > self.next:
                self._passed_over = True
                await self.ask_again()
            case End(frames, reason, detail):
                self.ended = True
                self.whole = reason == WHOLE
                if not self.whole:
                    told = f"{reason}: {detail}" if detail else reason
                    raise StreamFailed(f"{self._reference} ended at frame {frames}: {told}", reason=reason)
        return None

    async def _send(self, message: Message) -> None:
        await self._socket.send_multipart(to_parts(message))
