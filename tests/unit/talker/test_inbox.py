"""The inbox pulls from real streams, and wakes who waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import pytest

pytest.importorskip("torch")

from common.channel import Frame, Publisher, Puller, Reference
from common.channel.reference import Key
from common.conditioning import STAGE, frame_rows
from engines.talker.conditioning import Conditioning
from engines.talker.inbox import Inbox, pull

WITHIN = 30.0


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.stop()


@pytest.fixture
def thinker() -> Iterator[Publisher]:
    with Publisher() as publisher:
        yield publisher


def test_two_readers_share_one_pull_and_what_comes_later_comes(inbox: Inbox, thinker: Publisher) -> None:
    key = Key("r", STAGE)
    streams = (str(thinker.reference(key)),)
    first = inbox.open(streams)
    assert inbox.open(streams) is first
    thinker.publish(key, frame_rows(2, 0, [5, 6]))
    assert inbox.wait(lambda: first.ids == [5, 6], WITHIN)
    inbox.close(streams)
    thinker.publish(key, frame_rows(2, 2, [7]))
    thinker.close(key)
    assert inbox.wait(lambda: first.ended, WITHIN)
    assert (first.ids, first.failure) == ([5, 6, 7], None)
    inbox.close(streams)
    assert inbox.open(streams) is not first


@pytest.mark.parametrize("stream", ["no reference", None])
def test_a_stream_that_fails_says_why(inbox: Inbox, thinker: Publisher, stream: str | None) -> None:
    key = Key("r", STAGE)
    thinker.close(key, "it burnt")
    found = inbox.open((stream or str(thinker.reference(key)),))
    assert inbox.wait(lambda: found.failure is not None, WITHIN)
    assert ("it burnt" if stream is None else "no reference") in (found.failure or "")
    assert not found.ended


async def test_a_fault_that_no_one_foresaw_fails_its_request_too() -> None:
    class Broken(Puller):
        async def frames(self, reference: Reference, start: int = 0) -> AsyncGenerator[Frame, None]:
            raise RecursionError("too deep")
            yield

    found, told = Conditioning(1), []
    async with Broken() as puller:
        await pull(puller, "duet+tcp://h:1?request=r&stage=s", 0, found, lambda: told.append(1))
    assert "RecursionError: too deep" in (found.failure or "")
    assert told == [1]


def test_frames_that_do_not_fit_are_a_failure_of_their_request_alone(inbox: Inbox, thinker: Publisher) -> None:
    good, bad = Key("good", STAGE), Key("bad", STAGE)
    found = inbox.open((str(thinker.reference(bad)),))
    other = inbox.open((str(thinker.reference(good)),))
    thinker.publish(bad, frame_rows(2, 1, [6]))
    thinker.publish(good, frame_rows(1, 0, [6]))
    assert inbox.wait(lambda: found.failure is not None, WITHIN)
    assert "expected 0" in (found.failure or "")
    assert inbox.wait(lambda: other.ids == [6], WITHIN)
