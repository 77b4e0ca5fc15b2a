"""The producer's end: one thread that answers pulls out of what the engine publishes.

An engine's step calls `publish` and goes on: a frame is appended under a lock, and the thread is woken. Sockets belong
to the thread alone, as ZeroMQ wants it. Woken, it looks at the streams that changed and at those that were asked for;
all of them it looks at now and then.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import zmq

from common.channel.claim import Claim, path_of
from common.channel.consumers import Consumer, Consumers
from common.channel.errors import ChannelError
from common.channel.frame import Rows
from common.channel.reference import Key, Reference, check_endpoint
from common.channel.sockets import bound
from common.channel.streams import ERROR, STOPPED, UNKNOWN, WHOLE, End, Limits, Streams
from common.channel.wire import Drop, Message, More, Pull, Wait, from_parts, to_parts
from common.clock import Clock, SystemClock

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at what has expired and who is gone."""
A_TURN = 256
"""Messages that are read before frames are sent again: whoever asks without pause starves nobody."""
UNKNOWN_FOR = 3600.0
"""Seconds that a pull waits for a stream that nobody has opened: its request may stand in a queue. Whoever wants the
rows gives up long before, by deadlines of its own; this is for one that is gone without a word."""
SILENT_FOR = 60.0
"""Seconds after which a consumer that said nothing is forgotten. If it is still there, it asks again."""


class Publisher:
    """Owns the streams of one process. `publish`, `close` and `release` may be called from any thread.

    `endpoint` is what consumers connect to; None makes an `ipc` socket in a folder that only this user can enter.
    For `tcp`, `bind` may differ from it: a wildcard address, say. Raises ChannelError if another producer is there.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        bind: str | None = None,
        limits: Limits | None = None,
        unknown_for: float = UNKNOWN_FOR,
        clock: Clock | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="duet-")) if endpoint is None else None
        self.endpoint = endpoint or f"ipc://{self._folder}/rows"
        self._pid = os.getpid()
        self._claim: Claim | None = None
        self._streams = Streams(limits or Limits())
        self._unknown_for = unknown_for
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._consumers = Consumers()
        self._due: set[Key] = set()
        self._look_at = 0.0
        self._stopping = False
        try:
            check_endpoint(self.endpoint)
            path = path_of(bind or self.endpoint)
            self._claim = Claim(path) if path else None
            self._context, self._socket = bound(bind or self.endpoint)
        except ChannelError:
            self._leave_nothing()
            raise
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="duet-channel", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def reference(self, key: Key) -> Reference:
        return Reference(self.endpoint, key)

    def publish(self, key: Key, rows: Mapping[str, Rows]) -> int:
        """Appends a frame and returns its index. Raises StreamClosed or ChannelFull."""
        try:
            with self._lock:
                return self._streams.add(key, rows, self._clock.monotonic(), self._consumers.keys).index
        finally:
            self._notify()

    def close(self, key: Key, error: str | None = None) -> None:
        """Ends a stream: whole, or with why it is not. Closing it again changes nothing."""
        with self._lock:
            self._streams.close(key, self._clock.monotonic(), WHOLE if error is None else ERROR, error or "")
        self._notify()

    def release(self, key: Key) -> None:
        """Drops a stream and its rows; consumers that are still there are told so."""
        with self._lock:
            self._streams.release(key)
        self._notify()

    def held(self) -> tuple[int, int]:
        """Streams and bytes that are kept now."""
        with self._lock:
            return len(self._streams), self._streams.nbytes

    def stop(self) -> None:
        """Tells every consumer that the producer stops, and leaves nothing behind. May be called twice; a process that
        ends does it by itself."""
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:
            return  # a forked child: all of it is its parent's
        self._stopping = True
        self._notify()
        self._thread.join()
        self._woken.close()
        self._wake.close()
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        if self._claim is not None:
            self._claim.release()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _notify(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread has been woken already; closed: it has ended
            self._wake.send(b"\0")

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        try:
            while not self._stopping:
                poller.poll(int(LOOK_EVERY * 1000))
                with contextlib.suppress(BlockingIOError):
                    while self._woken.recv(4096):
                        pass
                self._take()
                now = self._clock.monotonic()
                if now >= self._look_at:
                    self._look(now)
                    self._look_at = now + LOOK_EVERY
                self._pump(now)
            for consumer in self._consumers:
                self._send(consumer.identity, End(consumer.sent, STOPPED))
        finally:
            self._socket.close()
            self._context.term()

    def _take(self) -> None:
        """Reads what consumers ask. What cannot be read is dropped: its sender asks again, or is no consumer."""
        for _ in range(A_TURN):
            try:
                identity, *parts = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                self._obey(identity, from_parts(parts))
            except ChannelError:
                continue
            except Exception:  # one message must not end the thread that serves all streams
                log.exception("channel %s: a message of %d parts was dropped", self.endpoint, len(parts))

    def _obey(self, identity: bytes, message: Message) -> None:
        now = self._clock.monotonic()
        match message:
            case Pull(key, start, credit):
                if not self._consumers.pull(identity, key, start, credit, now):
                    return
                self._send(identity, Wait())
            case More(key, credit):
                if not self._consumers.more(identity, key, credit, now):
                    return
            case Drop(key, release):
                self._consumers.forget(identity, key)
                if release:
                    with self._lock:
                        self._streams.release(key)
                return
            case _:
                return
        self._due.add(key)
        with self._lock:
            self._streams.touch(key, now)

    def _look(self, now: float) -> None:
        """At everything: what has expired, who said nothing for long, and who waits for what nobody opened."""
        with self._lock:
            self._streams.expire(now)
        for consumer in self._consumers:
            if now - consumer.heard >= SILENT_FOR:
                self._consumers.forget(consumer.identity, consumer.key)
            elif now - consumer.since >= self._unknown_for:
                self._due.add(consumer.key)

    def _pump(self, now: float) -> None:
        """Sends what they may have to the consumers of streams where something is new."""
        with self._lock:
            self._due |= self._streams.take_changed()
        due, self._due = self._due, set()
        for key in due:
            for consumer in self._consumers.of(key):
                try:
                    self._tell(consumer, now)
                except Exception as e:  # one stream that cannot be sent must not end the thread either
                    log.exception("channel %s: stream %s, frame %d", self.endpoint, key, consumer.sent)
                    why = f"frame {consumer.sent} cannot be sent: {type(e).__name__}: {e}"
                    with contextlib.suppress(zmq.ZMQError):
                        self._end(consumer, End(consumer.sent, ERROR, why))

    def _tell(self, consumer: Consumer, now: float) -> None:
        with self._lock:
            found = self._streams.read(consumer.key, consumer.sent, consumer.credit)
        if found is None:
            if consumer.sent or now - consumer.since >= self._unknown_for:
                # who has had frames of it waits in vain: this producer never had them, or forgot them
                self._end(consumer, End(0, UNKNOWN))
            return
        frames, end = found
        for frame in frames:
            self._send(consumer.identity, frame)
            consumer.sent += 1
            consumer.credit -= 1
        if end is not None:
            self._end(consumer, end)

    def _end(self, consumer: Consumer, end: End) -> None:
        self._consumers.forget(consumer.identity, consumer.key)
        self._send(consumer.identity, end)

    def _send(self, identity: bytes, message: Message) -> None:
        """A consumer that has left is no fault: ROUTER drops what is for it."""
        self._socket.send_multipart([identity, *to_parts(message)], copy=False)
