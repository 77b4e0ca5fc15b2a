"""openai-python against real engines: what it reads of an answer, and what it raises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.conftest import Real, gateway_over
from tests.real_engines import MAX_LEN, RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

MODEL = "tiny"
KEY = "sk-test"
TALK = [{"role": "user", "content": "Say something."}]


@pytest.fixture
async def real(real_engines: RealEngines, redis_url: str) -> AsyncIterator[Real]:
    async with gateway_over(real_engines, redis_url, api_key=(KEY,)) as found:
        yield found


@pytest.fixture
async def client(real: Real) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{real.url}/v1", api_key=KEY, max_retries=0) as found:
        yield found


async def test_models(client: AsyncOpenAI) -> None:
    (model,) = [m async for m in client.models.list()]
    assert (model.id, model.object) == (MODEL, "model")
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")


async def test_a_whole_chat_answer(client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=TALK, max_tokens=8, extra_headers={"x-request-id": "mine"}
    )
    answer = raw.parse()
    assert raw.headers["x-request-id"] == "mine"
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens is not None


async def test_a_streamed_chat_answer_is_the_whole_one_in_pieces(client: AsyncOpenAI) -> None:
    asked = {"model": MODEL, "messages": TALK, "max_tokens": 12, "temperature": 0}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert {c.id for c in chunks} == {chunks[0].id}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert [c.usage.completion_tokens for c in chunks if c.usage] == [12]


async def test_the_stream_helper_accumulates(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=TALK, max_tokens=6) as stream:
        async for _ in stream:
            pass
        final = stream.current_completion_snapshot
    assert final.choices[0].message.content
    assert final.choices[0].finish_reason == "length"


async def test_completions(client: AsyncOpenAI) -> None:
    asked = {"model": MODEL, "prompt": "One, two,", "max_tokens": 8, "temperature": 0}
    whole = await client.completions.create(**asked)
    stream = await client.completions.create(**asked, stream=True)
    assert "".join([c.choices[0].text async for c in stream]) == whole.choices[0].text
    assert whole.object == "text_completion"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8


async def test_stop_ends_an_answer(client: AsyncOpenAI) -> None:
    asked = {"model": MODEL, "messages": TALK, "max_tokens": 200, "temperature": 0}
    text = (await client.chat.completions.create(**asked)).choices[0].message.content
    assert text is not None
    stop = text[20:22]
    stopped = await client.chat.completions.create(**asked, stop=[stop])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == text[: text.index(stop)]


async def test_what_it_raises(client: AsyncOpenAI, real: Real) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="nope", messages=TALK)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        await client.completions.create(model=MODEL, prompt=[5] * (MAX_LEN + 1), max_tokens=1)
    assert long.value.code == "context_length_exceeded"
    assert str(MAX_LEN) in long.value.message
    with pytest.raises(openai.BadRequestError, match="temperature"):
        await client.chat.completions.create(model=MODEL, messages=TALK, temperature=-9)
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model=MODEL, input="x")
    assert missing.value.request_id


async def test_no_engine_raises_503_that_says_when_to_come_back(real_engines: RealEngines, redis_url: str) -> None:
    dead = "http://127.0.0.1:9"
    async with (
        gateway_over(real_engines, redis_url, decode=(dead,)) as real,
        AsyncOpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model=MODEL, messages=TALK)
    assert caught.value.status_code == 503
    assert caught.value.code == "no_routable_engine"
    assert int(caught.value.response.headers["retry-after"]) >= 1
