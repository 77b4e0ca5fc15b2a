"""Bodies of every path are bounded, by their length and by what may pass between two parts of them."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from fastapi import Body, FastAPI

from common.errors import BodyTimeout, PayloadTooLarge
from gateway.api.app import create_app
from gateway.api.body import Bodies

Message = MutableMapping[str, Any]


def receiving(*parts: bytes, more: bool = False) -> Any:
    """A `receive` that gives these parts; with `more` it says that another follows, and nothing comes."""
    left = list(parts)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or more}

    return receive


async def test_parts_pass_up_to_the_longest_body() -> None:
    receive = Bodies(most=4, within=60).bounded(receiving(b"ab", b"cd"))
    assert [(await receive())["body"] for _ in range(2)] == [b"ab", b"cd"]


async def test_one_byte_more_is_too_much() -> None:
    receive = Bodies(most=4, within=60).bounded(receiving(b"ab", b"cde"))
    await receive()
    with pytest.raises(PayloadTooLarge):
        await receive()


async def test_the_next_part_has_its_time_and_the_end_has_none() -> None:
    """Whoever still listens behind the body waits for the client's leaving."""
    late = Bodies(most=4, within=0.01).bounded(receiving(b"a", more=True))
    await late()
    with pytest.raises(BodyTimeout, match="after 1 bytes"):
        await late()
    whole = Bodies(most=4, within=0.01).bounded(receiving(b"a"))
    await whole()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(whole(), 0.1)


@pytest.mark.parametrize(("more", "most", "status"), [(True, 99, 408), (False, 1, 413)])
async def test_fastapi_passes_on_what_is_wrong_with_a_body(more: bool, most: int, status: int) -> None:
    app = create_app(lambda _: None)  # type: ignore[arg-type, return-value]
    add_echo(app)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/echo", "headers": headers, "query_string": b""}
    await app(scope, Bodies(most=most, within=0.01).bounded(receiving(b'"x"', more=more)), send)
    assert sent[0]["status"] == status


def add_echo(app: FastAPI) -> None:
    @app.post("/echo")
    async def echo(said: str = Body()) -> str:
        return said
