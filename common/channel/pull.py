"""The consumer's end: frames of a stream in order, each once, whatever happens to the connection.

It says how many frames it will take, and allows more as it takes them, so a slow consumer is never flooded. When it
has heard nothing for a beat it pulls again from the index that it needs next: that heals a lost connection, and tells
a producer that has nothing from one that is gone. Beats are counted, not time: a consumer whose own loop stood still
has waited one beat, and asks before it gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from socket import getaddrinfo
from types import TracebackType
from typing import Any

import zmq.asyncio

from common.channel.errors import ChannelError, ProducerLost, PullerClosed, StreamFailed
from common.channel.frame import Frame
from common.channel.hosts import Resolve, by_ipv6_within
from common.channel.reference import Reference
from common.channel.sockets import CONSUMER_LINGER_MS, connected, say
from common.channel.streams import WHOLE, End
from common.channel.wire import MOST_CREDIT, Drop, Message, More, Pull, from_parts

WINDOW = 64
"""Frames that may be on their way."""
RE_ASKS = 3
"""How often it asks again for a frame that the producer passes over, before it gives up."""
MAX_SOCKETS = 65_535


class Puller:
    """Pulls streams, in one event loop. `beat` and `lost_after` in seconds: how long it hears nothing before it asks
    again, and how long it goes on asking a producer that does not answer, once at least. `resolve` finds the addresses
    of a producer that is known by a name, in a thread and within a beat."""

    def __init__(
        self,
        *,
        beat: float = 1.0,
        lost_after: float = 10.0,
        window: int = WINDOW,
        resolve: Resolve = getaddrinfo,
    ) -> None:
        self._beat = beat
        self._patience = max(2, round(lost_after / beat))
        self._window = min(window, MOST_CREDIT)
        self._resolve = resolve
        self._context = zmq.asyncio.Context()
        self._context.max_sockets = MAX_SOCKETS
        self._open: set[_Pull] = set()
        self._closed = False

    async def __aenter__(self) -> Puller:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every pull that is still open, with PullerClosed, and tells its producer."""
        self._closed = True
        for pull in list(self._open):
            pull.close()
        self._context.destroy(CONSUMER_LINGER_MS)

    async def frames(self, reference: Reference, start: int = 0) -> AsyncGenerator[Frame, None]:
        """Frames from index `start` on. Ends when the stream is whole; raises StreamFailed if it is not, ProducerLost
        if nobody answers, PullerClosed, ChannelError for answers that do not bring what was asked for. Close the
        generator (`aclosing`) to stop early: the producer is then told."""
        pull = _Pull(await self._connected(reference), reference, start, self._window)
        self._open.add(pull)
        silent = 0
        try:
            pull.ask()
            while not pull.whole:
                message = await pull.hear(self._beat)
                if message is None:
                    silent += 1
                    if silent >= self._patience:
                        waited = f"{silent * self._beat:g} s, asked again every {self._beat:g} s"
                        raise ProducerLost(f"{reference}: no answer for {waited}, at frame {pull.next}")
                    pull.ask_again()
                    continue
                silent = 0
                frame = pull.take(message)
                if frame is not None:
                    yield frame
        finally:
            self._open.discard(pull)
            pull.close()

    async def release(self, reference: Reference) -> None:
        """Tells the producer that nobody will pull this stream again. If that is lost, its TTL does the same later."""
        dealer = await self._connected(reference)
        try:
            say(dealer, Drop(reference.key, release=True))
        finally:
            dealer.close(CONSUMER_LINGER_MS)

    async def _connected(self, reference: Reference) -> zmq.asyncio.Socket:
        ipv6 = await by_ipv6_within(self._beat, reference.endpoint, self._resolve)
        if self._closed:
            raise _closed(reference)
        return connected(self._context, reference, ipv6=ipv6)


class _Pull:
    """How far one pull has come. It has its socket."""

    def __init__(self, socket: zmq.asyncio.Socket, reference: Reference, start: int, window: int) -> None:
        self.next = start
        self.whole = False
        self._ended = False
        self._socket = socket
        self._reference = reference
        self._window = window
        self._waiting: asyncio.Future[Any] | None = None
        self._allowed = 0
        self._passed_over = False  # since the last ask: the next frame was left out
        self._ahead = 0  # frames beyond the next one, since it is waited for
        self._asked_again = 0

    async def hear(self, beat: float) -> Message | None:
        """What the producer says; None if that is nothing for `beat` seconds. Raises PullerClosed, ChannelError."""
        ready = 0
        if not self._socket.closed:
            self._waiting = asyncio.ensure_future(self._socket.poll(int(beat * 1000)))
            ready = await self._waiting
        if self._socket.closed:
            raise _closed(self._reference)
        if not ready:
            return None
        return from_parts([part.buffer for part in await self._socket.recv_multipart(copy=False)])

    def close(self) -> None:
        """Tells a producer that has not ended it. Whoever waits in `hear` is woken. May be called twice."""
        if self._socket.closed:
            return
        if not self._ended:
            self._send(Drop(self._reference.key, release=False))
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(0)
        self._socket.close(CONSUMER_LINGER_MS)

    def ask(self) -> None:
        self._allowed = self._window
        self._send(Pull(self._reference.key, self.next, self._window))

    def ask_again(self) -> None:
        """Raises ChannelError if the producer has passed over the next frame too often."""
        if self._passed_over:
            if self._asked_again == RE_ASKS:
                raise ChannelError(f"{self._reference}: frame {self.next} did not come, asked again {RE_ASKS} times")
            self._asked_again += 1
            self._passed_over = False
        self.ask()

    def take(self, message: Message) -> Frame | None:
        """The frame if it is the one that is needed next. Raises StreamFailed, ChannelError."""
        match message:
            case Frame(index) if index == self.next:
                self.next += 1
                self._passed_over, self._ahead, self._asked_again = False, 0, 0
                self._allowed -= 1
                if self._allowed <= self._window // 2:
                    more = self._window - self._allowed
                    self._allowed += more
                    self._send(More(self._reference.key, more))
                return message
            case Frame(index) if index > self.next:  # some were lost with a connection
                self._passed_over = True
                self._ahead += 1
                if self._ahead % self._window == 1 % self._window:  # the others of a window were on their way already
                    self.ask_again()
            case End(frames, reason) if reason == WHOLE and frames > self.next:
                self._passed_over = True
                self.ask_again()
            case End(frames, reason, detail):
                self._ended = True
                self.whole = reason == WHOLE
                if not self.whole:
                    told = f"{reason}: {detail}" if detail else reason
                    raise StreamFailed(f"{self._reference} ended at frame {frames}: {told}", reason=reason)
        return None

    def _send(self, message: Message) -> None:
        say(self._socket, message)


def _closed(reference: Reference) -> PullerClosed:
    return PullerClosed(f"{reference}: its pull was closed here")
