"""Clients of `POST /v1/speech` that leave at any moment: nothing of theirs goes on, and nobody waits for a collector of
garbage. Servers of ASGI 2.3 tell a client's going by `receive`, those of 2.4 by an error of `send`."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Scope

from common.errors import BadRequest
from engines.talker.ask import Ask
from engines.talker.endpoint import _speech
from engines.talker.utterance import Done, Event, Frames, Started

STARTED = Started("duet+ipc:///rows?request=r&stage=talker", 15)
BODY = json.dumps({"request_id": "r", "conditioning": ["duet+ipc:///rows?request=r&stage=thinker"]}).encode()
pytestmark = pytest.mark.parametrize("spec", ["2.3", "2.4"])


class Speaker:
    """Says `events`, then fails or goes on saying nothing. `waiting` is set once it does; `closed` counts its ends, and
    `whole` is whether it got behind `Done`."""

    def __init__(self, *events: Event, error: BadRequest | None = None) -> None:
        self.waiting = asyncio.Event()
        self.closed = 0
        self.whole = False
        self._events, self._error = events, error

    async def speak(self, ask: Ask) -> AsyncGenerator[Event, None]:
        try:
            for event in self._events:
                yield event
                if isinstance(event, Done):
                    self.whole = True
                    return
            if self._error is not None:
                raise self._error
            self.waiting.set()
            await asyncio.Event().wait()
        finally:
            self.closed += 1


class Client:
    """Reads until `left`. Once `stops_at` is in what it is sent it reads no more: `send` then waits until it leaves, as
    uvicorn's does while its buffer is full."""

    def __init__(self, stops_at: bytes | None = None) -> None:
        self.left, self.stuck = asyncio.Event(), asyncio.Event()
        self.status = 0
        self.heard = b""
        self._stops_at = stops_at
        self._asked = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": BODY, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        body = message.get("body", b"")
        self.heard += body
        if self._stops_at is not None and self._stops_at in body:
            self.stuck.set()
            await self.left.wait()
            await asyncio.sleep(0)  # the server hears of it first
            raise OSError("the client left")

    async def call(self, speaker: Speaker, spec: str) -> None:
        app = SimpleNamespace(state=SimpleNamespace(duet_speaker=speaker))
        scope: Scope = {"type": "http", "method": "POST", "headers": [], "asgi": {"spec_version": spec}}
        scope["app"] = cast(Any, app)
        answer = await _speech(Request(scope, self.receive, self.send))
        await answer(scope, self.receive, self.send)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """What is closed by reference counts alone would be found by nobody in a cycle, as real answers are."""
    gc.disable()
    yield
    gc.enable()


async def test_a_whole_answer(spec: str) -> None:
    speaker, client = Speaker(STARTED, Frames(1), Done(1, "stop")), Client()
    await client.call(speaker, spec)
    assert client.status == 200
    assert [line.partition(b",")[0] for line in client.heard.split(b"\n\n")] == [
        b'data: {"type":"started"',
        b'data: {"type":"frames"',
        b'data: {"type":"done"',
        b"data: [DONE]",
        b"",
    ]
    assert (speaker.closed, speaker.whole) == (1, True)


async def test_a_failure_ends_the_answer(spec: str) -> None:
    speaker, client = Speaker(STARTED, error=BadRequest("no voice", param="speaker")), Client()
    await client.call(speaker, spec)
    assert b'"no voice"' in client.heard
    assert client.heard.endswith(b"data: [DONE]\n\n")
    assert speaker.closed == 1


async def test_a_failure_before_the_first_event_has_a_status(spec: str) -> None:
    speaker, client = Speaker(error=BadRequest("no voice", param="speaker")), Client()
    await client.call(speaker, spec)
    assert (client.status, speaker.closed) == (400, 1)


async def test_a_client_that_leaves_as_it_is_told_of_the_end_takes_nothing_with_it(spec: str) -> None:
    """As the gateway does. The codes are made, and must not end as those of a client that left."""
    speaker, client = Speaker(STARTED, Frames(1), Done(1, "stop")), Client(b"done")
    call = asyncio.ensure_future(client.call(speaker, spec))
    await client.stuck.wait()
    assert (speaker.closed, speaker.whole) == (1, True)
    client.left.set()
    await asyncio.wait({call})
    assert isinstance(call.exception(), ClientDisconnect if spec == "2.4" else type(None))


@pytest.mark.parametrize("event", ["started", "frames"])
async def test_a_client_that_leaves_while_it_is_told_ends_its_speech(spec: str, event: str) -> None:
    """It reads no more, or hangs up as soon as it has read: what is sent waits for it."""
    speaker, client = Speaker(STARTED, Frames(1), Done(1, "stop")), Client(event.encode())
    call = asyncio.ensure_future(client.call(speaker, spec))
    await client.stuck.wait()
    assert speaker.closed == 0
    client.left.set()
    await asyncio.wait({call})
    assert isinstance(call.exception(), ClientDisconnect if spec == "2.4" else type(None))
    assert speaker.closed == 1, "at once"


async def test_a_client_that_leaves_before_it_is_told_ends_its_speech(spec: str) -> None:
    speaker, client = Speaker(), Client()
    call = asyncio.ensure_future(client.call(speaker, spec))
    await speaker.waiting.wait()
    client.left.set()
    await asyncio.wait({call})
    assert (client.status, speaker.closed) == (499, 1)


async def test_a_client_that_leaves_between_two_events_ends_its_speech(spec: str) -> None:
    speaker, client = Speaker(STARTED), Client()
    call = asyncio.ensure_future(client.call(speaker, spec))
    await speaker.waiting.wait()
    client.left.set()
    if spec == "2.4":  # nothing is sent that could fail: the server ends the call
        call.cancel()
    await asyncio.wait({call})
    assert speaker.closed == 1


async def test_a_server_that_ends_while_it_is_told_ends_its_speech(spec: str) -> None:
    speaker, client = Speaker(STARTED, Frames(1)), Client(b"frames")
    call = asyncio.ensure_future(client.call(speaker, spec))
    await client.stuck.wait()
    call.cancel()
    await asyncio.wait({call})
    assert (call.cancelled(), speaker.closed) == (True, 1)
