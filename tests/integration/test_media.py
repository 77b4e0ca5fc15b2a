"""Media in messages: the same parts with one identity on both legs, and downloads that fail."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.conftest import MODEL, Pair

PATH = "/v1/chat/completions"
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "what is this?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    {"type": "audio_url", "audio_url": {"url": "https://example.org/a.wav"}, "uuid": "mine"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
]
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PARTS}], "max_tokens": 6}
FAILED = "Failed to fetch https://example.org/a.png"


async def test_both_legs_know_what_they_download_under_one_name(pair: Pair) -> None:
    replies = [await pair.client.post(PATH, json=BODY) for _ in range(2)]
    legs = [call.body["messages"][0]["content"] for call in (*pair.prefill.calls, *pair.decode.calls)]
    named = [[*PARTS[:1], {**PARTS[1], "uuid": f"{r.headers['x-duet-request-id']}-0"}, *PARTS[2:]] for r in replies]
    assert legs == [*named, *named]
    assert named[0] != named[1], "what is behind the URL may be another picture by then"


async def test_the_answer_is_the_unsplit_engines(pair: Pair) -> None:
    split = (await pair.client.post(PATH, json=BODY)).json()
    async with httpx.AsyncClient(base_url=pair.prefill_url) as client:
        whole = (await client.post(PATH, json=BODY)).json()
    assert (split["choices"], split["usage"]) == (whole["choices"], whole["usage"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_download_that_fails_at_prefill_fails_the_request_before_decode(pair: Pair, stream: bool) -> None:
    pair.prefill.rule("status", status=400, message=FAILED)
    reply = await pair.client.post(PATH, json={**BODY, "stream": stream})
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, FAILED)
    assert (len(pair.prefill.calls), len(pair.decode.calls)) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_download_that_fails_at_decode_fails_it_before_its_first_byte(pair: Pair, stream: bool) -> None:
    pair.decode.rule("status", on="decode", status=400, message=FAILED)
    reply = await pair.client.post(PATH, json={**BODY, "stream": stream})
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, FAILED)
    assert len(pair.prefill.calls) == 1, "a 4xx is no reason for another attempt"
