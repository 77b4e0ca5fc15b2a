"""What a producer keeps of its streams: every frame, until released or untouched for its time to live.

Bounded in bytes and frames: a frame that does not fit ends its stream with an error that both ends see. Before that,
streams that have ended and that nobody pulls make room. Nothing here waits, and time is given; one lock is held by
whoever calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from common.channel.errors import ChannelFull, StreamClosed
from common.channel.frame import Frame, Rows
from common.channel.reference import Key

WHOLE, FULL, RELEASED, EXPIRED, UNKNOWN, STOPPED = "whole", "full", "released", "expired", "unknown", "stopped"
EVICTED, ERROR = "evicted", "error"
"""How a stream can end; with `error`, the producer's own words are the detail."""
REMEMBERED = 4096
"""Streams that are gone whose end is still known, so that a late consumer is told why."""
RESTED_FOR = 10.0
"""Seconds since a stream was last touched after which, if one has read it, all have: they come one soon after the other
(a Thinker's rows go to the Talker's endpoint, its engine core and its workers; codes to a Code2Wav, or to a second)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`stream_bytes` of one stream, `total_bytes` of all together; `ttl` in seconds since a stream was last touched.

    A minute of speech is 750 frames of 16 codes; a prompt of 32,768 rows of 2048 in bfloat16 is 128 MiB.
    """

    stream_bytes: int = 256 * 2**20
    total_bytes: int = 2 * 2**30
    stream_frames: int = 65_536
    ttl: float = 300.0


@dataclass(frozen=True, slots=True)
class End:
    """`frames` is how many there were; `reason` is `whole` or why not, `detail` says more."""

    frames: int
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Stream:
    touched: float
    frames: list[Frame] = field(default_factory=list)
    nbytes: int = 0
    end: End | None = None
    read: bool = False
    """Whether somebody has read it to its end."""


class Streams:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.nbytes = 0
        self._streams: dict[Key, Stream] = {}
        self._gone: OrderedDict[Key, End] = OrderedDict()
        self._changed: set[Key] = set()

    def __len__(self) -> int:
        return len(self._streams)

    def add(
        self, key: Key, rows: Mapping[str, Rows], now: float, pulled: Callable[[], Collection[Key]] = tuple
    ) -> Frame:
        """Appends a frame; the first opens the stream. `pulled` tells which streams have a consumer: those are never
        dropped for it. Raises StreamClosed after its end, ChannelFull without room."""
        stream = self._open(key, now)
        frame = Frame(len(stream.frames), rows)
        limits = self.limits
        for name, value, most in (
            ("stream_bytes", stream.nbytes + frame.nbytes, limits.stream_bytes),
            ("stream_frames", len(stream.frames) + 1, limits.stream_frames),
            ("total_bytes", self.nbytes + frame.nbytes, limits.total_bytes),
        ):
            if value > most and not (name == "total_bytes" and self._make_room(value - most, now, pulled())):
                why = f"channel stream {key}: frame {frame.index} would make {name} {value}, at most {most}"
                self.close(key, now, FULL, why)
                raise ChannelFull(why)
        stream.frames.append(frame)
        stream.nbytes += frame.nbytes
        self.nbytes += frame.nbytes
        self._changed.add(key)
        return frame

    def close(self, key: Key, now: float, reason: str = WHOLE, detail: str = "") -> None:
        """Ends a stream, one without a frame too. A stream that has ended keeps its first end."""
        if key in self._gone:
            return
        stream = self._streams.setdefault(key, Stream(now))
        if stream.end is None:
            stream.end = End(len(stream.frames), reason, detail)
            stream.touched = now
            self._changed.add(key)

    def release(self, key: Key, reason: str = RELEASED) -> None:
        """Drops a stream's frames; what is pulled or published of it afterwards is told so."""
        stream = self._streams.pop(key, None)
        frames = 0
        if stream is not None:
            self.nbytes -= stream.nbytes
            frames = len(stream.frames)
        self._gone.setdefault(key, End(frames, reason))
        self._changed.add(key)
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def expire(self, now: float) -> list[Key]:
        """Releases what nobody touched for `ttl`. Returns which."""
        over = [key for key, stream in self._streams.items() if now - stream.touched >= self.limits.ttl]
        for key in over:
            self.release(key, EXPIRED)
        return over

    def touch(self, key: Key, now: float) -> None:
        if stream := self._streams.get(key):
            stream.touched = now

    def take_changed(self) -> set[Key]:
        """Streams with something new since the last call: a frame, an end, or that they are gone."""
        changed, self._changed = self._changed, set()
        return changed

    def read(self, key: Key, start: int, most: int) -> tuple[list[Frame], End | None] | None:
        """At most so many frames from `start` on, and the end if nothing follows them. None: not known (yet)."""
        if key in self._gone:
            return [], self._gone[key]
        stream = self._streams.get(key)
        if stream is None:
            return None
        frames = stream.frames[start : start + most]
        last = start + len(frames) >= len(stream.frames)
        stream.read = stream.read or (last and stream.end is not None)
        return frames, stream.end if last else None

    def _make_room(self, nbytes: int, now: float, pulled: Collection[Key]) -> bool:
        """Drops so many bytes of ended streams without a consumer, in this order, and in each the longest untouched
        first: those that were read and rest since; those that nobody read; those that were read just now, whose other
        readers may be on their way. Nothing if they have not that many."""
        ended = [key for key, stream in self._streams.items() if stream.end is not None and key not in pulled]
        if sum(self._streams[key].nbytes for key in ended) < nbytes:
            return False

        def order(key: Key) -> tuple[int, float]:
            stream = self._streams[key]
            rests = now - stream.touched >= RESTED_FOR
            return (0 if rests else 2) if stream.read else 1, stream.touched

        below = self.nbytes - nbytes
        for key in sorted(ended, key=order):
            if self.nbytes > below and self._streams[key].nbytes:
                self.release(key, EVICTED)
        return True

    def _open(self, key: Key, now: float) -> Stream:
        end = self._gone.get(key)
        stream = None if end else self._streams.setdefault(key, Stream(now))
        if stream is None or stream.end is not None:
            ended = end or (stream and stream.end)
            assert ended
            raise StreamClosed(f"channel stream {key} has ended: {ended.reason} {ended.detail}".rstrip())
        stream.touched = now
        return stream
