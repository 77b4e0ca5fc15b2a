"""Who pulls what: bounded, for all and for each, and without a trace of those that left."""

from __future__ import annotations

from common.channel.consumers import MOST, MOST_OF_ONE, Consumers
from common.channel.reference import Key
from common.channel.wire import MOST_CREDIT

KEY, OTHER = Key("r-1-decode", "thinker"), Key("r-2-decode", "thinker")


def test_one_that_pulls_again_is_the_same_and_begins_anew() -> None:
    it = Consumers()
    assert it.pull(b"a", KEY, 0, 8, now=1.0)
    assert it.pull(b"a", KEY, 5, 4, now=2.0)
    (consumer,) = it
    assert (consumer.sent, consumer.credit, consumer.since, consumer.heard) == (5, 4, 1.0, 2.0)
    assert it.more(b"a", KEY, 3, now=3.0)
    assert (consumer.credit, consumer.heard) == (7, 3.0)
    assert not it.more(b"a", OTHER, 3, now=3.0)
    assert not it.more(b"b", KEY, 3, now=3.0)
    assert len(it) == 1


def test_they_are_found_by_stream_until_they_leave() -> None:
    it = Consumers()
    for identity, key in ((b"a", KEY), (b"b", KEY), (b"a", OTHER)):
        it.pull(identity, key, 0, 1, now=0.0)
    assert [consumer.identity for consumer in it.of(KEY)] == [b"a", b"b"]
    assert it.keys() == {KEY, OTHER}
    it.forget(b"a", OTHER)
    it.forget(b"a", OTHER)
    it.forget(b"nobody", KEY)
    assert (len(it), it.keys(), it.of(OTHER)) == (2, {KEY}, [])
    it.forget(b"a", KEY)
    it.forget(b"b", KEY)
    assert (len(it), it.keys(), list(it)) == (0, set(), [])
    assert it._of_peer == it._of_stream == {}


def test_a_peer_has_a_most_and_all_have_one() -> None:
    it = Consumers(most=5, most_of_one=3)
    pulled = [it.pull(b"a", Key(str(at), "s"), 0, 1, now=0.0) for at in range(9)]
    assert pulled == [True] * 3 + [False] * 6
    assert [it.pull(bytes([at]), KEY, 0, 1, now=0.0) for at in range(4)] == [True] * 2 + [False] * 2
    assert it.pull(b"a", Key("0", "s"), 7, 1, now=0.0), "who is here may go on"
    assert len(it) == 5
    it.forget(b"a", Key("0", "s"))
    assert it.pull(b"b", KEY, 0, 1, now=0.0)
    assert MOST_OF_ONE < MOST


def test_nobody_allows_more_frames_than_can_be_wanted() -> None:
    it = Consumers()
    it.pull(b"a", KEY, 0, 2**40, now=0.0)
    it.more(b"a", KEY, 2**40, now=0.0)
    assert [consumer.credit for consumer in it] == [MOST_CREDIT]
