"""That work grows with what engines and clients send, and no faster."""

from __future__ import annotations

import json

import pytest

from common.errors import BadRequest
from gateway.dispatch import relay
from gateway.dispatch.speech import Ask
from gateway.wire import parse, says_nothing
from tests.unit.gateway.coordinating import Rig, event, prefilled, streamed


async def test_what_is_held_back_is_not_read_again_with_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(events: bytes) -> bool:
        read.append(len(events))
        return says_nothing(events)

    monkeypatch.setattr(relay, "says_nothing", counted)
    rig, pings = Rig(), [b": ping\n\n"] * 500
    rig.client.on(leg="prefill", reply=prefilled())
    rig.client.on(leg="decode", reply=streamed(*pings, "hi"))
    sink = await rig.ask(stream=True)
    assert sink.body.startswith(b"".join(pings) + b"data: ")
    assert json.dumps(event("hi")).encode() in sink.body
    assert len(read) == 501
    assert sum(read) < len(sink.body)


@pytest.mark.parametrize(
    ("audio", "param"),
    [
        ({"voice": {"id": 3}, "format": "wav"}, "audio.voice.id"),
        ({"voice": "a"}, "audio"),
        ([], "audio"),
        ({"voice": {"id": "a", "x - at `$.y`": 1}, "format": "wav"}, "audio.voice"),
        ({"voice": {"id": "a", " - at `$" * 2**18 + "\n": 1}, "format": "wav"}, "audio.voice"),
    ],
)
def test_the_field_at_fault_is_found_behind_whatever_a_client_wrote(audio: object, param: str) -> None:
    body = {"model": "m", "messages": [], "modalities": ["text", "audio"], "audio": audio}
    with pytest.raises(BadRequest) as caught:
        Ask.of(parse("/v1/chat/completions", json.dumps(body).encode()), ["a"])
    assert caught.value.param == param
    assert " - at `$.voice" not in caught.value.message
