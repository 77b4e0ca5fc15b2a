"""Every client against real vLLM, prefill and decode apart: the wire as it is, whatever the model says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.clients_run import Client, Told, ask, who_can
from tests.e2e.conftest import gateway_over
from tests.real_engines import RealEngines

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

MODEL = "tiny"
KEY = "sk-conformance"
TOKENS = 40
"""What every script asks for at most, greedily: the tiny model's sampled words end, now and then, with the first."""
THINGS = ("chat", "stream", "unknown_model", "wrong_key", "bad_request")


@pytest.fixture(scope="module")
def runs(
    real_engines: RealEngines, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Client], Any]:
    done: dict[str, Told] = {}

    def run(client: Client) -> Told:
        if client.name not in done:
            done[client.name] = asyncio.run(_run(client, real_engines, redis_url, tmp_path_factory.mktemp(client.name)))
        return done[client.name]

    return run


async def _run(client: Client, engines: RealEngines, redis_url: str, home: Path) -> Told:
    things = tuple(thing for thing in THINGS if thing in client.things)
    async with gateway_over(engines, redis_url, api_key=(KEY,)) as real:
        return await ask(client, real.url, KEY, MODEL, things, home=home)


@who_can("chat")
def test_chat(runs: Any, client: Client) -> None:
    _expect_answer(runs(client)["chat"])


@who_can("stream")
def test_stream(runs: Any, client: Client) -> None:
    told = runs(client)["stream"]
    _expect_answer(told)
    assert told["saw"]["pieces"] > 1


def _expect_answer(told: Any) -> None:
    saw = told.get("saw")
    assert saw is not None, told
    assert saw["text"]
    assert saw["prompt"] > 0
    assert 0 < saw["completion"] <= TOKENS
    if "finish" in saw:
        assert saw["finish"] == ("length" if saw["completion"] == TOKENS else "stop")


@who_can("chat")
@pytest.mark.parametrize(
    ("thing", "status", "words"),
    [("unknown_model", 404, "nope"), ("wrong_key", 401, "key"), ("bad_request", 400, "-9")],
)
def test_errors(runs: Any, client: Client, thing: str, status: int, words: str) -> None:
    told = runs(client)[thing]
    assert "raised" in told, told
    assert told["raised"]["status"] == status
    assert words in told["raised"]["message"]
