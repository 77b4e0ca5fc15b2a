"""`/v1/completions` in full, as openai-python asks: a split answer is the unsplit engine's, field by field."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.conftest import Real, gateway_over
from tests.real_engines import RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

TEXT = "One, two, three, four,"
IDS = [11, 12, 13, 14, 15, 16, 17]
ASKS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "text": ({"prompt": TEXT}, 1),
    "a list of one text": ({"prompt": [TEXT]}, 1),
    "texts": ({"prompt": [TEXT, "Five,", "Six, seven,"]}, 3),
    "ids": ({"prompt": IDS}, 1),
    "a list of one list of ids": ({"prompt": [IDS]}, 1),
    "lists of ids": ({"prompt": [IDS, IDS[:3]]}, 2),
    "no length": ({"prompt": TEXT, "max_tokens": None}, 1),
    "n": ({"prompt": TEXT, "n": 3, "temperature": 1, "seed": 7}, 3),
    "n for each prompt": ({"prompt": [TEXT, "Five,"], "n": 2, "temperature": 1, "seed": 7}, 4),
    "echo": ({"prompt": TEXT, "echo": True}, 1),
    "echo of ids": ({"prompt": IDS, "echo": True}, 1),
    "echo alone": ({"prompt": TEXT, "echo": True, "max_tokens": 0}, 1),
    "logprobs": ({"prompt": TEXT, "logprobs": 3}, 1),
    "no alternatives": ({"prompt": TEXT, "logprobs": 0}, 1),
    "echo with logprobs": ({"prompt": TEXT, "echo": True, "logprobs": 2}, 1),
    "best_of": ({"prompt": TEXT, "best_of": 1}, 1),
    "stop": ({"prompt": TEXT, "stop": ["a", "e"]}, 1),
    "penalties": ({"prompt": TEXT, "frequency_penalty": 0.5, "presence_penalty": 0.5}, 1),
    "logit_bias": ({"prompt": TEXT, "logit_bias": {"11": 100}}, 1),
    "user": ({"prompt": TEXT, "user": "somebody"}, 1),
}
each = pytest.mark.parametrize(("ask", "choices"), ASKS.values(), ids=ASKS.keys())


@pytest.fixture
async def real(real_engines: RealEngines, redis_url: str) -> AsyncIterator[Real]:
    async with gateway_over(real_engines, redis_url) as found:
        yield found


@pytest.fixture
async def split(real: Real) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture
async def unsplit(real: Real) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{real.engines.unsplit.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def _body(ask: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 8, "temperature": 0, **ask}


@each
async def test_whole(split: AsyncOpenAI, unsplit: AsyncOpenAI, ask: Mapping[str, Any], choices: int) -> None:
    answer = await split.completions.create(**_body(ask))
    expected = await unsplit.completions.create(**_body(ask))
    assert (answer.object, answer.model) == ("text_completion", "tiny")
    assert [choice.index for choice in answer.choices] == list(range(choices))
    assert _plain(answer.choices) == _plain(expected.choices)
    assert answer.usage is not None
    assert expected.usage is not None
    assert _counts(answer.usage) == _counts(expected.usage)


@each
async def test_streamed(split: AsyncOpenAI, ask: Mapping[str, Any], choices: int) -> None:
    whole = await split.completions.create(**_body(ask))
    stream = await split.completions.create(**_body(ask), stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    texts, ends = [""] * choices, [""] * choices
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] += choice.text
        ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert texts == [choice.text for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert len({chunk.id for chunk in chunks}) == 1
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert whole.usage is not None
    assert _counts(usage) == _counts(whole.usage)


@pytest.mark.parametrize(
    "ask",
    [{"prompt": TEXT, "suffix": "the end"}, {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {"prompt": TEXT, "n": 0}],
    ids=["suffix", "no text", "no prompts", "no ids", "no answers"],
)
async def test_what_the_engine_refuses(split: AsyncOpenAI, unsplit: AsyncOpenAI, ask: Mapping[str, Any]) -> None:
    with pytest.raises(openai.APIStatusError) as expected:
        await unsplit.completions.create(**_body(ask))
    with pytest.raises(openai.BadRequestError) as refused:
        await split.completions.create(**_body(ask))
    assert refused.value.status_code == expected.value.status_code
    assert refused.value.body["message"] == expected.value.body["message"]  # type: ignore[index]


def _plain(choices: Any) -> list[Any]:
    return [choice.model_dump() for choice in choices]


def _counts(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
