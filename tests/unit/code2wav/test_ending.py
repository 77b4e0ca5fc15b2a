"""Clients that leave at any moment, and answers that break off: nothing is left running, and nothing is left unsaid."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from common.errors import DuetError
from engines.answering import unless_gone
from engines.code2wav.ending import Calls, Sound
from engines.code2wav.errors import CodesInvalid

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/v1/code2wav", "asgi": {"spec_version": "2.3"}}


async def gone() -> Message:
    return {"type": "http.disconnect"}


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


class Wire:
    """What is sent. A server sends no more than it is given: a body without its end stays without it."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.begun = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.begun.set()

    @property
    def finished(self) -> bool:
        return not self.sent[-1].get("more_body", False)


@pytest.mark.parametrize("steps", range(8))
async def test_a_failure_while_the_client_leaves_is_taken_note_of(steps: int) -> None:
    """The work fails some turns of the loop after the client has left: in one of them it is just being ended."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
    left = asyncio.Event()

    async def leave() -> Message:
        left.set()
        return await gone()

    async def fail() -> bytes:
        await left.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        raise CodesInvalid("no codes")

    with contextlib.suppress(CodesInvalid):
        assert await unless_gone(leave, fail()) is None
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []


async def test_work_that_is_done_is_its_result() -> None:
    async def work() -> bytes:
        return b"sound"

    assert await unless_gone(stays, work()) == b"sound"


@pytest.mark.parametrize("receive", [gone, stays])
async def test_sound_is_closed_with_its_answer(receive: Receive) -> None:
    """Also where the client left before a byte was sent, and the body was never begun."""
    closed = False

    async def audio() -> AsyncGenerator[bytes, None]:
        nonlocal closed
        try:
            yield b"1"
            yield b"2"
        finally:
            closed = True

    sound = audio()
    answer = Sound(await anext(sound), sound, {})
    await answer(SCOPE, receive, Wire().send)
    assert closed


async def test_what_fails_after_its_beginning_is_left_without_an_end() -> None:
    async def audio() -> AsyncGenerator[bytes, None]:
        yield b"2"
        raise CodesInvalid("no codes")

    wire, running = Wire(), set[asyncio.Task[Any]]()
    await Calls(Sound(b"1", audio(), {}), running)(SCOPE, stays, wire.send)
    assert [message.get("body") for message in wire.sent] == [None, b"1", b"2"]
    assert not wire.finished
    assert not running


async def test_what_fails_before_it_is_a_fault() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise CodesInvalid("nobody turned this into an answer")

    with pytest.raises(DuetError):
        await Calls(app, set())(SCOPE, stays, Wire().send)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_call_that_ends_with_the_server_is_refused_or_breaks_off(begun: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await asyncio.Event().wait()

    wire, running = Wire(), set[asyncio.Task[Any]]()
    task = asyncio.ensure_future(Calls(app, running)(SCOPE, stays, wire.send))
    await asyncio.sleep(0)
    assert running == {task}
    task.cancel()
    await task
    assert wire.sent[0]["status"] == (200 if begun else 503)
    assert wire.finished == (not begun)
    assert not running
