"""What a client is told when the gateway itself is at fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from gateway.api.auth import Keys
from gateway.api.body import Bodies
from gateway.api.hot import HotPath
from gateway.dispatch.sink import Sink
from gateway.telemetry import Metrics
from gateway.wire import ClientRequest


class Faulty:
    """A coordinator that fails by a fault of its own, after what it has written."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def new_id(self) -> str:
        return "r1"

    async def run(self, request_id: str, request: ClientRequest, sink: Sink, *, client_id: str | None) -> None:
        if self._parts:
            await sink.start(200, [(b"content-type", b"text/event-stream")])
        for part in self._parts:
            await sink.write(part)
        raise ZeroDivisionError


async def said(*parts: bytes) -> tuple[int, bytes]:
    bodies = Bodies(most=10_000, within=5)
    hot = HotPath(Faulty(*parts), Keys([], None), Metrics(), bodies)  # type: ignore[arg-type]
    body = json.dumps({"model": "m", "prompt": "x", "stream": True}).encode()
    sent: list[MutableMapping[str, Any]] = []
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        for message in received:
            return message
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    await hot(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])


async def test_before_the_first_byte_it_is_a_500() -> None:
    status, body = await said()
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")


async def test_after_it_the_stream_ends_with_an_error_event() -> None:
    status, body = await said(b"data: {}\n\n")
    events = body.decode().split("\n\n")
    assert (status, events[0], events[2:]) == (200, "data: {}", ["data: [DONE]", ""])
    assert json.loads(events[1].removeprefix("data: "))["error"]["code"] == "internal_error"
