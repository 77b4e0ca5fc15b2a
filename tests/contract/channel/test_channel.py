"""Both ends over real sockets, `ipc` and `tcp` of both protocols: one suite, since a consumer must not see which one it
is."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import zmq

from common.channel import (
    ChannelError,
    ChannelFull,
    Frame,
    Key,
    Limits,
    ProducerLost,
    Publisher,
    Puller,
    PullerClosed,
    Reference,
    Rows,
    StreamClosed,
    StreamFailed,
)
from common.channel.consumers import Consumers
from common.channel.wire import Pull, to_parts
from common.ports import free_ports

ROOT = Path(__file__).parents[3]
KEY = Key("r-1-decode", "thinker")
WITHIN = 60.0
"""Seconds after which a test has failed: a machine may stand still for some of them."""
LOST_AFTER = 1.0
"""Seconds that a test waits for who does not answer."""


def has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6: one without it cannot have a channel there."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return socket.has_ipv6
    except OSError:
        return False


LOOPBACKS = ["127.0.0.1", "[::1]"] if has_ipv6() else ["127.0.0.1"]


@pytest.fixture(params=["ipc", *LOOPBACKS])
def endpoint(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "ipc" else f"tcp://{request.param}:{free_ports(1)[0]}"


@pytest.fixture
def publisher(endpoint: str | None) -> Iterator[Publisher]:
    with Publisher(endpoint) as publisher:
        yield publisher


@pytest.fixture
async def puller() -> AsyncIterator[Puller]:
    async with Puller(beat=0.1, lost_after=LOST_AFTER, window=8) as puller:
        yield puller


def row(number: int) -> dict[str, Rows]:
    return {"ids": Rows.of("int64", (1,), number.to_bytes(8, "little")), "x": Rows.of("float32", (0, 4), b"")}


def number(frame: Frame) -> int:
    return int.from_bytes(frame.rows["ids"].data, "little")


async def pulled(puller: Puller, reference: Reference, start: int = 0, got: list[int] | None = None) -> list[int]:
    """What came, in `got` too, for when it ends with an error."""
    got = [] if got is None else got
    async for frame in puller.frames(reference, start):
        got.append(number(frame))
    return got


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_stream_arrives_whole_and_in_order(publisher: Publisher, puller: Puller) -> None:
    for at in range(100):
        assert publisher.publish(KEY, row(at)) == at
    publisher.close(KEY)
    reference = Reference.parse(str(publisher.reference(KEY)))
    assert await pulled(puller, reference) == list(range(100))
    assert await pulled(puller, reference, 97) == [97, 98, 99], "again, and from any index"
    assert await pulled(puller, reference, 100) == []


async def test_rows_arrive_as_they_are_made(publisher: Publisher, puller: Puller) -> None:
    """And the pull may come before the stream."""
    async with aclosing(puller.frames(publisher.reference(KEY))) as frames:
        first = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0.05)
        for at in range(30):
            publisher.publish(KEY, row(at))
            assert number(await (first if at == 0 else anext(frames))) == at
        publisher.close(KEY)
        assert [frame async for frame in frames] == []


async def test_shapes_and_bytes_are_kept(publisher: Publisher, puller: Puller) -> None:
    data = os.urandom(2 * 3 * 70_000 * 2)
    publisher.publish(KEY, {"hidden": Rows.of("bfloat16", (2, 3, 70_000), data)})
    publisher.close(KEY)
    (frame,) = [frame async for frame in puller.frames(publisher.reference(KEY))]
    hidden = frame.rows["hidden"]
    assert (hidden.dtype, hidden.shape, bytes(hidden.data)) == ("bfloat16", (2, 3, 70_000), data)


async def test_many_streams_and_threads_do_not_mix(publisher: Publisher, puller: Puller) -> None:
    keys = [Key(f"r{at}", "talker") for at in range(16)]

    def produce(key: Key, offset: int) -> None:
        for at in range(50):
            publisher.publish(key, row(offset + at))
        publisher.close(key)

    threads = [threading.Thread(target=produce, args=(key, 1000 * at)) for at, key in enumerate(keys)]
    for thread in threads:
        thread.start()
    found = await asyncio.gather(*(pulled(puller, publisher.reference(key)) for key in keys))
    for thread in threads:
        thread.join()
    assert found == [list(range(1000 * at, 1000 * at + 50)) for at in range(16)]


async def test_a_slow_consumer_is_not_flooded(publisher: Publisher, puller: Puller) -> None:
    for at in range(100):
        publisher.publish(KEY, row(at))
    publisher.close(KEY)
    got = []
    async with aclosing(puller.frames(publisher.reference(KEY))) as frames:
        async for frame in frames:
            got.append(number(frame))
            for consumer in publisher._consumers.of(KEY):
                assert consumer.sent <= len(got) + 8
    assert got == list(range(100))


@pytest.mark.parametrize("frames", [0, 3])
async def test_a_failure_comes_after_the_rows_before_it(publisher: Publisher, puller: Puller, frames: int) -> None:
    for at in range(frames):
        publisher.publish(KEY, row(at))
    publisher.close(KEY, "the engine died")
    got: list[int] = []
    with pytest.raises(StreamFailed, match=f"at frame {frames}: error: the engine died") as raised:
        await pulled(puller, publisher.reference(KEY), got=got)
    assert raised.value.reason == "error"
    assert got == list(range(frames))


async def test_a_stream_that_nobody_opens_ends_too(endpoint: str | None, puller: Puller) -> None:
    with Publisher(endpoint, unknown_for=0.2) as publisher:
        with pytest.raises(StreamFailed) as raised:
            await pulled(puller, publisher.reference(Key("nobody", "thinker")))
        assert raised.value.reason == "unknown"


async def test_who_has_had_frames_of_it_waits_for_no_stream_that_is_not_known(
    endpoint: str | None, puller: Puller
) -> None:
    """A producer that came in another's place does not have them: nobody waits for it as for one in a queue."""
    with Publisher(endpoint) as publisher:
        with pytest.raises(StreamFailed) as raised:
            await pulled(puller, publisher.reference(KEY), start=3)
        assert raised.value.reason == "unknown"


async def test_a_stream_may_be_long_in_coming(endpoint: str | None, puller: Puller) -> None:
    """Longer than a silent producer is waited for: this one is there, and says so."""
    with Publisher(endpoint) as publisher:
        waiting = asyncio.ensure_future(pulled(puller, publisher.reference(KEY)))
        done, _ = await asyncio.wait({waiting}, timeout=1.5)
        assert not done
        publisher.publish(KEY, row(7))
        publisher.close(KEY)
        assert await waiting == [7]


async def test_no_room_is_told_to_both_ends(endpoint: str | None, puller: Puller) -> None:
    with Publisher(endpoint, limits=Limits(stream_frames=2)) as publisher:
        publisher.publish(KEY, row(0))
        publisher.publish(KEY, row(1))
        with pytest.raises(ChannelFull):
            publisher.publish(KEY, row(2))
        with pytest.raises(StreamFailed, match="stream_frames 3") as raised:
            await pulled(puller, publisher.reference(KEY))
        assert raised.value.reason == "full"


async def test_rows_expire(endpoint: str | None, puller: Puller) -> None:
    with Publisher(endpoint, limits=Limits(ttl=0.1)) as publisher:
        publisher.publish(KEY, row(0))
        await until(lambda: publisher.held() == (0, 0))
        with pytest.raises(StreamFailed) as raised:
            await pulled(puller, publisher.reference(KEY))
        assert raised.value.reason == "expired"


async def test_a_consumer_may_say_that_it_is_done(publisher: Publisher, puller: Puller) -> None:
    publisher.publish(KEY, row(0))
    await puller.release(publisher.reference(KEY))
    await until(lambda: publisher.held() == (0, 0))
    with pytest.raises(StreamClosed, match="released"):
        publisher.publish(KEY, row(1))


async def test_a_consumer_that_leaves_is_forgotten(publisher: Publisher, puller: Puller) -> None:
    publisher.publish(KEY, row(0))
    async with aclosing(puller.frames(publisher.reference(KEY))) as frames:
        assert number(await anext(frames)) == 0
    await until(lambda: not publisher._consumers)
    assert publisher.held()[0] == 1, "its rows wait for the next one"


async def test_a_producer_that_stops_says_so(endpoint: str | None, puller: Puller) -> None:
    publisher = Publisher(endpoint)
    publisher.publish(KEY, row(0))
    async with aclosing(puller.frames(publisher.reference(KEY))) as frames:
        await anext(frames)
        await asyncio.to_thread(publisher.stop)
        with pytest.raises(StreamFailed) as raised:
            await anext(frames)
    assert raised.value.reason == "stopped"
    publisher.stop()
    if publisher.endpoint.startswith("ipc"):
        assert not Path(publisher.endpoint.removeprefix("ipc://")).parent.exists()


async def test_a_producer_that_was_killed_is_lost(endpoint: str | None, tmp_path: Path) -> None:
    beat = 0.1
    code = (
        "import sys, time; from common.channel import *; p = Publisher(sys.argv[1]);"
        "p.publish(Key('r', 's'), {'x': Rows.of('uint8', (1,), b'a')}); print(p.endpoint, flush=True); time.sleep(60)"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, endpoint or f"ipc://{tmp_path}/rows", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        at = (await child.stdout.readline()).decode().strip()
        async with (
            Puller(beat=beat, lost_after=WITHIN) as puller,
            aclosing(puller.frames(Reference(at, Key("r", "s")))) as frames,
        ):
            await anext(frames)
            child.kill()
            puller._patience = round(LOST_AFTER / beat)
            with pytest.raises(ProducerLost, match="at frame 1"):
                await anext(frames)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_process_that_ends_leaves_no_socket() -> None:
    code = (
        "from common.channel import *; p = Publisher(); print(p.endpoint);"
        "p.publish(Key('r', 's'), {'x': Rows.of('uint8', (1,), b'a')})"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(WITHIN):
        out, _ = await child.communicate()
    assert child.returncode == 0
    assert not Path(out.decode().strip().removeprefix("ipc://")).parent.exists()


async def test_a_pull_goes_on_where_a_new_producer_has_the_stream(tmp_path: Path, puller: Puller) -> None:
    """As after a connection that broke: no frame twice, none left out."""
    endpoint = f"ipc://{tmp_path}/rows"
    with Publisher(endpoint) as first:
        first.publish(KEY, row(0))
        frames = puller.frames(first.reference(KEY))
        assert number(await anext(frames)) == 0
        first._consumers = Consumers()  # it dies without a word
    with Publisher(endpoint) as second:
        for at in range(5):
            second.publish(KEY, row(at))
        second.close(KEY)
        assert [number(frame) async for frame in frames] == [1, 2, 3, 4]


async def test_a_second_producer_is_refused_and_the_first_goes_on(publisher: Publisher, puller: Puller) -> None:
    with pytest.raises(ChannelError, match="channel endpoint"):
        Publisher(publisher.endpoint)
    publisher.publish(KEY, row(7))
    publisher.close(KEY)
    assert await pulled(puller, publisher.reference(KEY)) == [7]


async def test_a_producer_that_was_killed_has_a_successor(tmp_path: Path, puller: Puller) -> None:
    endpoint = f"ipc://{tmp_path}/rows"
    code = "import os, sys; from common.channel import *; p = Publisher(sys.argv[1]); os.kill(os.getpid(), 9)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, endpoint, cwd=ROOT)
    await child.wait()
    assert (tmp_path / "rows").is_socket()
    with Publisher(endpoint) as publisher:
        publisher.publish(KEY, row(7))
        publisher.close(KEY)
        assert await pulled(puller, publisher.reference(KEY)) == [7]
    assert os.listdir(tmp_path) == []


async def test_what_is_at_an_endpoint_and_is_no_socket_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("somebody's")
    with pytest.raises(ChannelError, match=r"channel endpoint .*no socket"):
        Publisher(f"ipc://{file}")
    assert file.read_text() == "somebody's"


async def test_a_consumer_that_stood_still_does_not_blame_the_producer(endpoint: str | None) -> None:
    with Publisher(endpoint) as publisher:
        publisher.publish(KEY, row(0))
        async with (
            Puller(beat=0.5, lost_after=1.0) as puller,
            aclosing(puller.frames(publisher.reference(KEY))) as frames,
        ):
            assert number(await anext(frames)) == 0
            waiting = asyncio.ensure_future(anext(frames))
            await asyncio.sleep(0.1)
            time.sleep(1.5)  # noqa: ASYNC251 - as a loop does that somebody keeps
            await asyncio.sleep(0.1)
            publisher.publish(KEY, row(1))
            assert number(await waiting) == 1


async def test_a_puller_that_is_closed_ends_its_pulls(publisher: Publisher) -> None:
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
    publisher.publish(KEY, row(0))
    puller = Puller()
    silent = asyncio.ensure_future(pulled(puller, publisher.reference(Key("nobody", "thinker"))))
    waiting, kept = puller.frames(publisher.reference(KEY)), puller.frames(publisher.reference(KEY))
    for frames in (waiting, kept):
        assert number(await anext(frames)) == 0
    second = asyncio.ensure_future(anext(waiting))
    await until(lambda: len(publisher._consumers) == 3)
    puller.close()
    for pull in (silent, second, anext(kept), puller.release(publisher.reference(KEY))):
        with pytest.raises(PullerClosed):
            await pull
    with pytest.raises(PullerClosed):
        await pulled(puller, publisher.reference(KEY))
    await until(lambda: not len(publisher._consumers))
    del silent, second, pull
    gc.collect()
    await asyncio.sleep(0)
    assert said == []


async def test_a_place_that_cannot_be_is_said(puller: Puller) -> None:
    with pytest.raises(ChannelError, match="Invalid argument"):
        await pulled(puller, Reference("tcp://*:7100", KEY))


async def test_what_is_not_the_protocol_does_no_harm(publisher: Publisher, puller: Puller) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 100
        stranger.ipv6 = True
        stranger.connect(publisher.endpoint)
        for parts in ([b"hello"], [b"PULL", b"{"], to_parts(Pull(KEY, 0, 1))[:1], [b"WAIT"]):
            stranger.send_multipart(parts)
        publisher.publish(KEY, row(7))
        publisher.close(KEY)
        assert await pulled(puller, publisher.reference(KEY)) == [7]


WILDCARDS = [("127.0.0.1", "0.0.0.0"), ("localhost", "0.0.0.0")]
WILDCARDS += [("127.0.0.1", "[::]"), ("[::1]", "[::]")] if has_ipv6() else []


@pytest.mark.parametrize(("host", "wildcard"), WILDCARDS)
async def test_a_producer_at_all_addresses_is_reached_at_each(puller: Puller, host: str, wildcard: str) -> None:
    port = free_ports(1)[0]
    with Publisher(f"tcp://{host}:{port}", bind=f"tcp://{wildcard}:{port}") as publisher:
        publisher.publish(KEY, row(7))
        publisher.close(KEY)
        assert await pulled(puller, Reference.parse(str(publisher.reference(KEY)))) == [7]


async def test_a_pull_that_waits_for_a_name_ends_with_its_puller() -> None:
    """And the loop goes on while the name is looked up."""
    asked, answers = threading.Event(), threading.Event()

    def resolve(host: str, port: None) -> list[tuple[Any, ...]]:
        asked.set()
        answers.wait()
        return []

    async with Puller(beat=60.0, resolve=resolve) as puller:
        pull = asyncio.ensure_future(pulled(puller, Reference("tcp://thinker:7100", KEY)))
        await until(asked.is_set)
        puller.close()
        answers.set()
        with pytest.raises(PullerClosed):
            await pull


def test_an_endpoint_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for endpoint in (f"ipc://{tmp_path}/no/folder", "tcp://192.0.2.1:7100", "inproc://x", f"ipc:///{'x' * 120}"):
        with pytest.raises(ChannelError, match="channel endpoint"):
            Publisher(endpoint)
