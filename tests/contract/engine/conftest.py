"""Three engines, simulated or real: prefill, decode, and one that does both legs by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from engines.sim.engine import Latency, SimEngine
from engines.sim.runner import running

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PRODUCE = {"do_remote_decode": True, "do_remote_prefill": False}
ONE_TOKEN = {"max_tokens": 1, "min_tokens": 1, "ignore_eos": True, "n": 1, "stream": False}
"""What makes any request a prefill."""
SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
SHORTLY = 60.0
"""Seconds within which an engine lets go of what nobody wants any more."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Streamed:
    """A whole stream: `events` are JSON, without `[DONE]`."""

    reply: httpx.Response
    events: list[Json]
    done: bool


class Engine:
    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self.client = client
        self._model = model

    async def post(self, path: str, body: Mapping[str, Any], *, request_id: str | None = None) -> httpx.Response:
        headers = {"x-request-id": request_id} if request_id is not None else {}
        return await self.client.post(path, json={"model": self._model, "temperature": 0, **body}, headers=headers)

    async def whole(self, path: str, body: Mapping[str, Any], **options: Any) -> Json:
        reply = await self.post(path, body, **options)
        assert reply.status_code == 200, reply.text
        found: Json = reply.json()
        return found

    async def stream(self, path: str, body: Mapping[str, Any], **options: Any) -> Streamed:
        reply = await self.post(path, {**body, "stream": True}, **options)
        assert reply.status_code == 200, reply.text
        blocks = reply.text.split("\n\n")
        assert blocks.pop() == "", "a stream ends with an empty line"
        assert all(block.startswith("data: ") for block in blocks), reply.text
        datas = [block.removeprefix("data: ") for block in blocks]
        done = datas[-1] == "[DONE]"
        return Streamed(reply, [json.loads(data) for data in datas[: -1 if done else None]], done)

    async def metric(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """One series. An AssertionError if there is none, or more than one."""
        wanted = {f'{k}="{v}"' for k, v in (labels or {}).items()}
        found = []
        for line in (await self.client.get("/metrics")).text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and wanted <= set(series.partition("{")[2].rstrip("}").split(",")):
                found.append(float(value))
        (only,) = found
        return only

    async def sources(self) -> dict[str, float]:
        """Prompt tokens so far, by where they came from."""
        name = "vllm:prompt_tokens_by_source_total"
        return {source: await self.metric(name, {"source": source}) for source in SOURCES}


@dataclass(frozen=True)
class Engines:
    prefill: Engine
    decode: Engine
    unsplit: Engine
    model: str
    max_model_len: int

    async def hand_over(self, path: str, body: Mapping[str, Any], **options: Any) -> tuple[Json, Json]:
        """Prefill's whole reply, and the handoff in it."""
        ask = {**body, **ONE_TOKEN, "kv_transfer_params": PRODUCE, "return_token_ids": True}
        reply = await self.prefill.whole(path, ask, **options)
        return reply, reply["kv_transfer_params"]


@asynccontextmanager
async def simulated() -> AsyncIterator[Engines]:
    made = [SimEngine(max_model_len=2048, latency=Latency(between_tokens=0.002)) for _ in range(3)]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(running(one)) for one in made]
        yield await over(stack, urls, "sim", 2048)


@asynccontextmanager
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Engines]:
    found = request.getfixturevalue("real_engines")
    urls = [found.prefill.url, found.decode.url, found.unsplit.url]
    async with AsyncExitStack() as stack:
        yield await over(stack, urls, found.model, 2048)


async def over(stack: AsyncExitStack, urls: list[str], model: str, max_model_len: int) -> Engines:
    clients = [
        await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False))
        for url in urls
    ]
    return Engines(*(Engine(client, model) for client in clients), model, max_model_len)


VLLM = [pytest.mark.vllm, pytest.mark.timeout(900)]  # the first test that wants real engines waits for them


@pytest.fixture(params=["sim", pytest.param("vllm", marks=VLLM)])
async def engines(request: pytest.FixtureRequest) -> AsyncIterator[Engines]:
    async with simulated() if request.param == "sim" else real(request) as made:
        yield made


@pytest.fixture
def fresh() -> str:
    """Text that no engine has in a cache: its first words are like no other's."""
    return (
        f"{uuid4().hex} and some more words, so that it takes more than one block of key-value cache: "
        + "one two " * 12
    )


def asked(path: str, text: str) -> Json:
    """The same text as a chat or as a completion."""
    return {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}


async def until(look: Any, what: str) -> None:
    """Fails unless `look` becomes true within `SHORTLY`."""
    try:
        async with asyncio.timeout(SHORTLY):
            while not await look():  # noqa: ASYNC110 - what is looked at is in another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {SHORTLY:g} s: {what}") from None
