"""What the Thinkers tell this process: a thread that pulls the streams of every request that is spoken here.

The engine core and each worker have one; where both are one process, they share it. The rows stay at their producers
until they are released, so each may pull them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache

from common.channel import ChannelError, Puller, Reference
from common.errors import DuetError
from engines.talker.conditioning import Conditioning

log = logging.getLogger(__name__)

Streams = tuple[str, ...]
"""The references of one request."""


@dataclass(slots=True)
class _Entry:
    conditioning: Conditioning
    users: int = 0
    pulls: list[asyncio.Task[None]] = field(default_factory=list)


class Inbox:
    """`open`, `close`, `wait` and `pause` may be called from any thread. Only the inbox's own thread writes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: dict[Streams, _Entry] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="duet-inbox", daemon=True)
        self._thread.start()

    def open(self, streams: Streams) -> Conditioning:
        """Begins to pull, if nobody has; each call wants one `close`."""
        with self._changed:
            entry = self._entries.get(streams)
            if entry is None:
                entry = self._entries[streams] = _Entry(Conditioning(len(streams)))
                self._loop.call_soon_threadsafe(self._begin, streams, entry)
            entry.users += 1
            return entry.conditioning

    def close(self, streams: Streams) -> None:
        with self._changed:
            entry = self._entries.get(streams)
            if entry is None:
                return
            entry.users -= 1
            if entry.users == 0:
                del self._entries[streams]
                self._loop.call_soon_threadsafe(self._end, entry)

    def wait(self, done: Callable[[], bool], within: float) -> bool:
        """Waits at most `within` seconds until `done`, looked at whenever something arrives."""
        with self._changed:
            return self._changed.wait_for(done, within)

    def pause(self, seconds: float) -> None:
        """Waits until something arrives, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._puller = Puller()
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._puller.close()
            self._loop.close()

    def _begin(self, streams: Streams, entry: _Entry) -> None:
        entry.pulls = [
            self._loop.create_task(pull(self._puller, text, at, entry.conditioning, self._notify))
            for at, text in enumerate(streams)
        ]

    def _end(self, entry: _Entry) -> None:
        for pull in entry.pulls:
            pull.cancel()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


async def pull(puller: Puller, text: str, at: int, conditioning: Conditioning, notify: Callable[[], None]) -> None:
    """Pulls the stream numbered `at` into `conditioning` until it ends, however it does. `text` is its reference."""
    try:
        async with aclosing(puller.frames(Reference.parse(text))) as frames:
            async for frame in frames:
                conditioning.add(at, frame)
                notify()
        conditioning.end(at)
    except ChannelError as e:
        conditioning.lose(at, e.message)
    except DuetError as e:
        conditioning.fail(e.message)
    except Exception as e:  # else whoever waits for this request would never hear of it
        log.exception("stream %s cannot be read", text)
        conditioning.fail(f"stream {text} cannot be read: {type(e).__name__}: {e}")
    notify()


@cache
def inbox() -> Inbox:
    """This process's."""
    return Inbox()
