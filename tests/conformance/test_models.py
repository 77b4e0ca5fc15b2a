"""`/v1/models` and `/v1/models/{id}`, where the id has a slash in it: written out, or as clients escape it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.conformance.scripted_gateway import KEY, MODEL, scripted_gateway


@pytest.fixture
async def url(redis_url: str) -> AsyncIterator[str]:
    async with scripted_gateway(redis_url) as (found, _):
        yield found


async def test_openai_python(url: str) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        (listed,) = [model async for model in client.models.list()]
        one = await client.models.retrieve(MODEL)
        assert listed == one
        assert (one.id, one.object, one.owned_by) == (MODEL, "model", "duet")
        assert one.created > 0
        for missing in ("nope", "org/nope", f"{MODEL}/more"):
            with pytest.raises(openai.NotFoundError, match=missing) as raised:
                await client.models.retrieve(missing)
            assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("written", ["org/scripted-1b", "org%2Fscripted-1b", "org%2fscripted%2D1b"])
async def test_a_slash_as_it_is_or_escaped(url: str, written: str) -> None:
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {KEY}"}) as client:
        reply = await client.get(f"/v1/models/{written}")
    assert reply.status_code == 200
    assert reply.json()["id"] == MODEL


async def test_without_a_key_there_is_no_list(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        replies = [await client.get(path) for path in ("/v1/models", f"/v1/models/{MODEL}")]
    assert [reply.status_code for reply in replies] == [401, 401]
