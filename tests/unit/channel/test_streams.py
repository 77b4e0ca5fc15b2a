"""What a producer keeps: every frame in order, within its bounds, for its time, and always an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.channel.errors import ChannelFull, StreamClosed
from common.channel.frame import Rows
from common.channel.reference import Key
from common.channel.streams import (
    EVICTED,
    EXPIRED,
    FULL,
    RELEASED,
    REMEMBERED,
    RESTED_FOR,
    WHOLE,
    End,
    Limits,
    Streams,
)

KEY, OTHER = Key("r-1-decode", "thinker"), Key("r-1-decode", "talker")


def rows(nbytes: int) -> dict[str, Rows]:
    return {"x": Rows.of("uint8", (nbytes,), bytes(nbytes))}


def filled(streams: Streams, sizes: list[int], key: Key = KEY, now: float = 0.0) -> None:
    for nbytes in sizes:
        streams.add(key, rows(nbytes), now)


@given(
    sizes=st.lists(st.integers(0, 9), max_size=30),
    start=st.integers(0, 40),
    most=st.integers(0, 40),
    whole=st.booleans(),
)
def test_any_part_can_be_read_again(sizes: list[int], start: int, most: int, whole: bool) -> None:
    streams = Streams(Limits())
    filled(streams, sizes)
    if whole:
        streams.close(KEY, 0.0)
    found = streams.read(KEY, start, most)
    if not sizes and not whole:
        assert found is None
        return
    assert found is not None
    frames, end = found
    assert [frame.index for frame in frames] == list(range(len(sizes)))[start : start + most]
    assert [frame.nbytes for frame in frames] == sizes[start : start + most]
    assert end == (End(len(sizes), WHOLE) if whole and start + len(frames) >= len(sizes) else None)
    assert streams.nbytes == sum(sizes)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(stream_bytes=10), "stream_bytes 12, at most 10"),
        (Limits(total_bytes=14), "total_bytes 17, at most 14"),
        (Limits(stream_frames=2), "stream_frames 3, at most 2"),
    ],
)
def test_what_does_not_fit_ends_its_stream_and_no_other(limits: Limits, name: str) -> None:
    streams = Streams(limits)
    filled(streams, [5], OTHER)
    filled(streams, [4, 4])
    with pytest.raises(ChannelFull, match=name):
        streams.add(KEY, rows(4), 0.0)
    found = streams.read(KEY, 2, 9)
    assert found is not None
    assert found[1] is not None
    assert (found[1].frames, found[1].reason) == (2, FULL)
    assert name in found[1].detail
    with pytest.raises(StreamClosed, match="full"):
        streams.add(KEY, rows(0), 0.0)
    streams.add(OTHER, rows(0), 0.0)


def test_ended_streams_make_room_the_longest_untouched_first() -> None:
    streams = Streams(Limits(total_bytes=12))
    old, new, pulled = Key("old", "s"), Key("new", "s"), Key("pulled", "s")
    for key, now in ((pulled, 0.0), (new, 1.0), (old, 2.0)):
        filled(streams, [4], key, now)
        streams.close(key, now)
    streams.touch(new, 3.0)
    streams.add(KEY, rows(3), 4.0, lambda: {pulled})
    assert streams.read(old, 0, 9) == ([], End(1, EVICTED))
    assert streams.nbytes == 11
    streams.add(KEY, rows(3), 4.0, lambda: {pulled})
    assert streams.read(new, 0, 9) == ([], End(1, EVICTED))
    with pytest.raises(ChannelFull, match="total_bytes 13, at most 12"):
        streams.add(KEY, rows(3), 4.0, lambda: {pulled})
    assert streams.nbytes == 10


UNREAD, OTHER_UNREAD = Key("unread", "s"), Key("other-unread", "s")
READ, OTHER_READ = Key("read", "s"), Key("other-read", "s")


@pytest.mark.parametrize(
    ("after", "order"),
    [
        (RESTED_FOR, [READ, OTHER_READ, UNREAD, OTHER_UNREAD]),
        (RESTED_FOR - 2, [READ, UNREAD, OTHER_UNREAD, OTHER_READ]),
        (RESTED_FOR - 5, [UNREAD, OTHER_UNREAD, READ, OTHER_READ]),
    ],
)
def test_what_makes_room_first(after: float, order: list[Key]) -> None:
    """What was read and rests since, what nobody asked for, and last what was read just now: its other readers may
    be on their way. `after` is how long the stream that rests least has rested."""
    streams = Streams(Limits(total_bytes=16))
    for key, now in ((UNREAD, 0.0), (READ, 1.0), (OTHER_UNREAD, 2.0), (OTHER_READ, 4.0)):
        filled(streams, [2, 2], key, now)
        streams.read(key, 0, 9)  # before its end: that is no end
        streams.close(key, now)
    streams.read(UNREAD, 0, 1)
    streams.read(READ, 1, 1)
    streams.read(OTHER_READ, 0, 9)
    for key in order:
        streams.add(KEY, rows(4), 4.0 + after)
        assert streams.read(key, 0, 1) == ([], End(2, EVICTED))
        assert streams.nbytes == 16


def test_what_is_new_is_told_once() -> None:
    streams = Streams(Limits(total_bytes=8, ttl=10.0))
    assert streams.take_changed() == set()
    filled(streams, [4])
    filled(streams, [4], OTHER)
    assert streams.take_changed() == {KEY, OTHER}
    streams.touch(KEY, 5.0)
    streams.read(KEY, 0, 9)
    assert streams.take_changed() == set()
    streams.close(OTHER, 0.0)
    assert streams.take_changed() == {OTHER}
    streams.add(KEY, rows(4), 5.0)
    assert streams.take_changed() == {KEY, OTHER}, "one had to go for it"
    streams.expire(15.0)
    assert streams.take_changed() == {KEY}
    streams.release(UNREAD)
    assert streams.take_changed() == {UNREAD}


def test_nothing_is_dropped_for_a_frame_that_would_not_fit_then_either() -> None:
    streams = Streams(Limits(total_bytes=12))
    filled(streams, [4], OTHER)
    streams.close(OTHER, 0.0)
    with pytest.raises(ChannelFull, match="total_bytes 17, at most 12"):
        streams.add(KEY, rows(13), 0.0)
    assert streams.nbytes == 4


def test_what_nobody_touches_expires() -> None:
    streams = Streams(Limits(ttl=10.0))
    filled(streams, [3], KEY, now=0.0)
    filled(streams, [3], OTHER, now=0.0)
    streams.touch(OTHER, 5.0)
    assert streams.expire(9.9) == []
    assert streams.expire(10.0) == [KEY]
    assert (len(streams), streams.nbytes) == (1, 3)
    assert streams.read(KEY, 0, 9) == ([], End(1, EXPIRED))
    assert streams.expire(15.0) == [OTHER]
    assert streams.nbytes == 0


def test_a_released_stream_stays_released() -> None:
    streams = Streams(Limits())
    filled(streams, [3])
    streams.release(KEY)
    streams.close(KEY, 0.0)
    streams.release(KEY, EXPIRED)
    assert streams.read(KEY, 0, 9) == ([], End(1, RELEASED))
    with pytest.raises(StreamClosed, match="released"):
        streams.add(KEY, rows(1), 0.0)
    assert (len(streams), streams.nbytes) == (0, 0)


def test_the_first_end_counts_and_an_empty_stream_has_one() -> None:
    streams = Streams(Limits())
    streams.close(KEY, 0.0, "error", "the engine died")
    streams.close(KEY, 0.0)
    assert streams.read(KEY, 0, 9) == ([], End(0, "error", "the engine died"))


def test_the_dead_are_remembered_but_not_for_ever() -> None:
    streams = Streams(Limits())
    for number in range(REMEMBERED + 1):
        streams.release(Key(str(number), "thinker"))
    assert streams.read(Key("0", "thinker"), 0, 9) is None
    assert streams.read(Key("1", "thinker"), 0, 9) == ([], End(0, RELEASED))
