"""The producer's end: one thread that answers pulls out of what the engine publishes.

An engine's step calls `publish` and goes on: a frame is appended under a lock, and the thread is woken. Sockets belong
to the thread alone, as ZeroMQ wants it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import zmq

from common.channel.errors import ChannelError
from common.channel.frame import Rows
from common.channel.reference import Key, Reference, check_endpoint
from common.channel.streams import STOPPED, UNKNOWN, WHOLE, End, Limits, Streams
from common.channel.wire import Drop, Message, More, Pull, Wait, from_parts, to_parts
from common.clock import Clock, SystemClock

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 500
"""Milliseconds between two looks at what has expired."""
UNKNOWN_FOR = 3600.0
"""Seconds that a pull waits for a stream that nobody has opened: its request may stand in a queue. Whoever wants the
rows gives up long before, by deadlines of its own; this is for one that is gone without a word."""
SILENT_FOR = 60.0
"""Seconds after which a consumer that said nothing is forgotten. If it is still there, it asks again."""
LINGER_MS = 1000


@dataclass(slots=True)
class _Consumer:
    """One consumer of one stream: how far it was sent, how many frames it still takes, and since when it is here."""

    sent: int
    credit: int
    since: float
    heard: float


class Publisher:
    """Owns the streams of one process. `publish`, `close` and `release` may be called from any thread.

    `endpoint` is what consumers connect to; None makes an `ipc` socket in a folder that only this user can enter.
    For `tcp`, `bind` may differ from it: a wildcard address, say.
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
        self._streams = Streams(limits or Limits())
        self._unknown_for = unknown_for
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._consumers: dict[tuple[bytes, Key], _Consumer] = {}
        self._stopping = False
        try:
            check_endpoint(self.endpoint)
            self._context = zmq.Context()
            self._socket = self._context.socket(zmq.ROUTER)
            self._socket.linger = LINGER_MS
            self._socket.sndhwm = 0  # bounded by the credit of each consumer instead
            self._socket.bind(bind or self.endpoint)
        except zmq.ZMQError as e:
            self._context.destroy(0)
            self._remove_folder()
            raise ChannelError(f"channel endpoint {bind or self.endpoint!r}: {e}") from e
        except ChannelError:
            self._remove_folder()
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
                return self._streams.add(key, rows, self._clock.monotonic(), self._pulled).index
        finally:
            self._notify()

    def close(self, key: Key, error: str | None = None) -> None:
        """Ends a stream: whole, or with why it is not. Closing it again changes nothing."""
        with self._lock:
            self._streams.close(key, self._clock.monotonic(), WHOLE if error is None else "error", error or "")
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
        self._stopping = True
        self._notify()
        self._thread.join()
        self._woken.close()
        self._wake.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self.endpoint.startswith("ipc://"):
            Path(self.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def _pulled(self) -> set[Key]:
        """Streams with a consumer. `list` of a dict is one step, so the thread may change it meanwhile."""
        return {key for _, key in list(self._consumers)}

    def _notify(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread has been woken already; closed: it has ended
            self._wake.send(b"\0")

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        try:
            while not self._stopping:
                poller.poll(LOOK_EVERY_MS)
                with contextlib.suppress(BlockingIOError):
                    while self._woken.recv(4096):
                        pass
                self._take()
                self._pump()
            for (identity, _), consumer in self._consumers.items():
                self._send(identity, End(consumer.sent, STOPPED))
        finally:
            self._socket.close()
            self._context.term()

    def _take(self) -> None:
        """Reads what consumers ask. What cannot be read is dropped: its sender asks again, or is no consumer."""
        while self._socket.poll(0):
            identity, *parts = self._socket.recv_multipart()
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
                known = self._consumers.get((identity, key))
                self._consumers[identity, key] = _Consumer(start, credit, known.since if known else now, now)
                self._send(identity, Wait())
            case More(key, credit):
                if known := self._consumers.get((identity, key)):
                    known.credit += credit
                    known.heard = now
            case Drop(key, release):
                self._consumers.pop((identity, key), None)
                if release:
                    with self._lock:
                        self._streams.release(key)
                return
            case _:
                return
        with self._lock:
            self._streams.touch(message.key, now)

    def _pump(self) -> None:
        """Sends every consumer what it may have."""
        now = self._clock.monotonic()
        with self._lock:
            self._streams.expire(now)
        for (identity, key), consumer in list(self._consumers.items()):
            if now - consumer.heard >= SILENT_FOR:
                del self._consumers[identity, key]
                continue
            with self._lock:
                found = self._streams.read(key, consumer.sent, consumer.credit)
            if found is None:
                if not consumer.sent and now - consumer.since < self._unknown_for:
                    continue  # who has had frames of it waits in vain: this producer never had them, or forgot them
                found = [], End(0, UNKNOWN)
            frames, end = found
            for frame in frames:
                self._send(identity, frame)
            consumer.sent += len(frames)
            consumer.credit -= len(frames)
            if end is not None:
                self._send(identity, end)
                del self._consumers[identity, key]

    def _send(self, identity: bytes, message: Message) -> None:
        """A consumer that has left is no fault: ROUTER drops what is for it."""
        self._socket.send_multipart([identity, *to_parts(message)], copy=False)
