"""Spoken answers in the clients' own hands: what they join is the sound that was made, and the text that was said."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.conformance import script
from tests.conformance.clients_run import Client, ask, who_can
from tests.conformance.scripted_gateway import FRAMES, KEY, MODEL, scripted_gateway
from tests.fakes.stages import sound

pytestmark = pytest.mark.timeout(300)

SPOKEN = sound(42, FRAMES)
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": script.HELLO}],
    "modalities": ["text", "audio"],
    "audio": {"voice": "ethan", "format": "pcm16"},
}


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with (
        scripted_gateway(redis_url) as (url, _),
        AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as found,
    ):
        yield found


async def test_openai_python_reads_a_whole_answer(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(**ASKED)
    message = answer.choices[0].message
    assert message.audio is not None
    assert message.content is None
    assert message.audio.transcript == script.GREETING.text
    assert base64.b64decode(message.audio.data) == SPOKEN
    assert message.audio.expires_at > time.time()
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.audio_tokens == FRAMES


async def test_openai_pythons_stream_helper_joins_it(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(**ASKED, stream_options={"include_usage": True}) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.audio is not None
    assert message.audio.id.count("audio_") == 1
    assert message.audio.transcript == script.GREETING.text
    assert base64.b64decode(message.audio.data, validate=True) == SPOKEN
    assert time.time() < message.audio.expires_at < time.time() + 7200
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.completion_tokens_details is not None
    assert final.usage.completion_tokens_details.audio_tokens == FRAMES


async def test_openai_python_goes_on_from_an_answers_audio(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(**ASKED)
    audio = answer.choices[0].message.audio
    assert audio is not None
    turns: list[Any] = [*ASKED["messages"], {"role": "assistant", "audio": {"id": audio.id}}, *ASKED["messages"]]
    again = await client.chat.completions.create(**{**ASKED, "messages": turns})
    assert again.choices[0].message.audio is not None
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(
            **{**ASKED, "messages": [{"role": "assistant", "audio": {"id": "audio_never"}}]}
        )
    assert caught.value.code == "audio_not_found"


@who_can("speak")
def test_other_clients_join_it_too(client: Client, redis_url: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with scripted_gateway(redis_url) as (url, _):
            return await ask(client, url, KEY, MODEL, ("speak", "stream_speak"), home=tmp_path)

    told = asyncio.run(run())
    for thing in ("speak", "stream_speak"):
        saw = told[thing]["saw"]
        assert (saw["content"], saw["finish"], saw["tokens"]) == (None, "stop", FRAMES)
        assert saw["transcript"] == script.GREETING.text
        assert base64.b64decode(saw["data"], validate=True) == SPOKEN
        assert saw["id"].count("audio_") == 1
        assert saw["expires_at"] > time.time()
