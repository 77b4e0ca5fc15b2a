"""What a peer that is broken, or means harm, can do to the other end: one stream is refused, nothing else stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from common.channel import (
    ChannelError,
    Frame,
    Key,
    Limits,
    ProducerLost,
    Publisher,
    Puller,
    Reference,
    Rows,
    StreamFailed,
    sockets,
)
from common.channel import publisher as publishing
from common.channel.consumers import MOST_OF_ONE
from common.channel.pull import RE_ASKS
from common.channel.streams import WHOLE, End
from common.channel.wire import MAX_ASKED, Drop, Message, Pull, Wait, from_parts, to_parts

KEY, OTHER = Key("r-1-decode", "thinker"), Key("r-2-decode", "thinker")
DEEP = b"[" * 60_000
WITHIN = 60.0
"""Seconds after which a test has failed."""
OFTEN, SELDOM = 0.2, 10.0
"""Seconds of a beat: where a test waits for some, and where it counts what is asked between two."""


def row(nbytes: int = 1) -> dict[str, Rows]:
    return {"x": Rows.of("uint8", (nbytes,), bytes(nbytes))}


def frame(index: int) -> Frame:
    return Frame(index, row())


async def pulled(puller: Puller, reference: Reference) -> list[int]:
    async with asyncio.timeout(WITHIN):
        return [frame.index async for frame in puller.frames(reference)]


@asynccontextmanager
async def producer(
    tmp_path: Path, answer: Callable[[int, Pull], list[Message]], *, beat: float = SELDOM
) -> AsyncIterator[tuple[Puller, Reference, list[int]]]:
    """A producer that says `answer(number of the pull, pull)`; the list has what index each pull began at. `beat` is
    its puller's."""
    starts: list[int] = []
    endpoint = f"ipc://{tmp_path}/rows"
    context = zmq.asyncio.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoint)

    async def serve() -> None:
        while True:
            identity, *parts = await router.recv_multipart()
            message = from_parts(parts)
            if isinstance(message, Pull):
                starts.append(message.start)
                for said in (Wait(), *answer(len(starts), message)):
                    await router.send_multipart([identity, *to_parts(said)])

    serving = asyncio.create_task(serve())
    try:
        async with Puller(beat=beat, lost_after=WITHIN, window=8) as puller:
            yield puller, Reference(endpoint, KEY), starts
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        context.destroy(0)


@pytest.mark.parametrize("verb", [b"PULL", b"MORE", b"DROP", b"FRAME", b"END"])
async def test_deep_json_does_not_end_the_thread(verb: bytes) -> None:
    with Publisher() as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 100
        stranger.connect(publisher.endpoint)
        stranger.send_multipart([verb, DEEP])
        stranger.send_multipart(to_parts(Pull(KEY, 0, 8)))
        publisher.publish(KEY, row())
        assert await asyncio.to_thread(stranger.poll, WITHIN * 1000), "it answers what comes afterwards"


async def test_a_message_that_no_one_foresaw_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(parts: list[bytes]) -> Message:
        if parts == [b"BAD"]:
            raise MemoryError
        return from_parts(parts)

    monkeypatch.setattr(publishing, "from_parts", read)
    with Publisher() as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 100
        stranger.connect(publisher.endpoint)
        stranger.send_multipart([b"BAD"])
        stranger.send_multipart(to_parts(Pull(KEY, 0, 8)))
        assert await asyncio.to_thread(stranger.poll, WITHIN * 1000)


async def test_a_long_message_ends_its_connection_and_nothing_else() -> None:
    with Publisher() as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        lost = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        stranger.connect(publisher.endpoint)
        stranger.send_multipart([b"PULL", b"x" * (MAX_ASKED + 1)])
        assert await asyncio.to_thread(lost.poll, WITHIN * 1000)
        stranger.disable_monitor()
        lost.close()
        publisher.publish(KEY, row())
        publisher.close(KEY)
        async with Puller() as puller:
            assert await pulled(puller, publisher.reference(KEY)) == [0]


async def test_one_that_pulls_everything_gets_some_and_costs_the_others_nothing() -> None:
    last = Key("last", "thinker")
    with Publisher() as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.sndhwm = 0
        stranger.connect(publisher.endpoint)
        publisher.publish(last, row())
        for at in range(5000):
            stranger.send_multipart(to_parts(Pull(Key(str(at), "thinker"), 0, 1)))
        stranger.send_multipart(to_parts(Drop(last, release=True)))
        async with asyncio.timeout(WITHIN):
            while publisher.held() != (0, 0):  # noqa: ASYNC110 - sockets are between
                await asyncio.sleep(0.01)
        assert len(publisher._consumers) == MOST_OF_ONE
        publisher.publish(KEY, row())
        publisher.close(KEY)
        async with Puller() as puller:
            assert await pulled(puller, publisher.reference(KEY)) == [0]


async def test_one_that_asks_without_pause_keeps_no_frame_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are sent between two turns, however many messages there are to read."""
    holds, go = threading.Event(), threading.Event()
    read: list[list[bytes]] = []
    before: list[int] = []

    def reading(parts: list[bytes]) -> Message:
        if parts == [b"HOLD"]:
            holds.set()
            go.wait(WITHIN)
        read.append(parts)
        return from_parts(parts)

    def writing(message: Message) -> list[bytes | memoryview]:
        if isinstance(message, Frame):
            before.append(len(read))
        return to_parts(message)

    monkeypatch.setattr(publishing, "from_parts", reading)
    monkeypatch.setattr(publishing, "to_parts", writing)
    with Publisher() as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.sndhwm = 0
        stranger.connect(publisher.endpoint)
        publisher.publish(KEY, row())
        stranger.send_multipart([b"HOLD"])
        await asyncio.to_thread(holds.wait, WITHIN)
        stranger.send_multipart(to_parts(Pull(KEY, 0, 8)))
        for _ in range(2 * publishing.A_TURN):
            stranger.send_multipart([b"NONSENSE"])
        await asyncio.sleep(0.5)  # so that they are there; if not, the less is asked here
        go.set()
        async with asyncio.timeout(WITHIN):
            while not before:  # noqa: ASYNC110 - sockets are between
                await asyncio.sleep(0.01)
        assert before[0] <= publishing.A_TURN


async def test_a_frame_that_cannot_be_said_ends_its_stream_and_no_other() -> None:
    """As one whose names are no text."""
    bad: Any = {("a", "b"): row()["x"]}
    with Publisher() as publisher:
        publisher.publish(KEY, row())
        publisher.publish(KEY, bad)
        publisher.publish(OTHER, row())
        publisher.close(OTHER)
        async with Puller(beat=SELDOM, lost_after=WITHIN) as puller, asyncio.timeout(WITHIN):
            frames = puller.frames(publisher.reference(KEY))
            assert (await anext(frames)).index == 0
            with pytest.raises(StreamFailed, match="at frame 1: error: frame 1 cannot be sent: TypeError") as raised:
                await anext(frames)
            assert raised.value.reason == "error"
            assert await pulled(puller, publisher.reference(OTHER)) == [0]
        assert len(publisher._consumers) == 0


async def test_a_frame_longer_than_a_stream_may_be_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MAX_TOLD", 1000)
    said = {0: Frame(0, row(1000)), 1: Frame(1, row(1001))}
    async with producer(tmp_path, lambda at, pull: [said[pull.start]]) as (_, reference, starts):
        async with Puller(beat=0.1, lost_after=1.0, window=1) as puller:
            with pytest.raises(ProducerLost, match="at frame 1"):
                await pulled(puller, reference)
        assert [start for start, _ in groupby(starts)] == [0, 1], "each may be asked for again after a beat"


async def test_what_was_read_makes_room_and_what_is_pulled_does_not() -> None:
    done, kept = Key("done", "thinker"), Key("kept", "thinker")
    with Publisher(limits=Limits(total_bytes=16)) as publisher:
        async with Puller(window=1) as puller:
            for key in (kept, done):
                for _ in range(4):
                    publisher.publish(key, row(2))
                publisher.close(key)
            frames = puller.frames(publisher.reference(kept))
            assert (await anext(frames)).index == 0
            assert await pulled(puller, publisher.reference(done)) == [0, 1, 2, 3]
            publisher.publish(KEY, row(8))
            assert publisher.held() == (2, 16)
            assert [frame.index async for frame in frames] == [1, 2, 3]


@pytest.mark.parametrize("said", [[End(9, WHOLE)], [frame(5)], [frame(5), End(9, WHOLE)]], ids=["end", "gap", "both"])
async def test_a_frame_that_never_comes_is_given_up(tmp_path: Path, said: list[Message]) -> None:
    async with producer(tmp_path, lambda at, pull: said, beat=OFTEN) as (puller, reference, starts):
        with pytest.raises(ChannelError, match=f"frame 0 did not come, asked again {RE_ASKS} times"):
            await pulled(puller, reference)
        assert set(starts) == {0}
        assert len(starts) >= RE_ASKS + 1


async def test_frames_that_were_told_are_not_taken_twice(tmp_path: Path) -> None:
    told = [frame(0), frame(0), frame(1), frame(0), frame(1), frame(2), End(3, WHOLE)]
    async with producer(tmp_path, lambda at, pull: told) as (puller, reference, starts):
        assert await pulled(puller, reference) == [0, 1, 2]
        assert starts == [0]


@pytest.mark.parametrize("behind", [[frame(at) for at in range(2, 8)], [End(8, WHOLE)]], ids=["gap", "end"])
async def test_what_is_missing_is_asked_for(tmp_path: Path, behind: list[Message]) -> None:
    """Once, however many frames behind the gap were on their way."""

    def answer(at: int, pull: Pull) -> list[Message]:
        return [frame(0), *behind] if at == 1 else [*(frame(at) for at in range(pull.start, 8)), End(8, WHOLE)]

    async with producer(tmp_path, answer) as (puller, reference, starts):
        assert await pulled(puller, reference) == list(range(8))
        assert starts == [0, 1]


async def test_every_new_frame_renews_the_patience(tmp_path: Path) -> None:
    def answer(at: int, pull: Pull) -> list[Message]:
        return [frame(pull.start), End(9, WHOLE)]

    async with producer(tmp_path, answer) as (puller, reference, starts):
        assert await pulled(puller, reference) == list(range(9))
        assert starts == list(range(9))
