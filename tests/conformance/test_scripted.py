"""Every client against engines that say what the test wrote: tools, typed answers, errors and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import script
from tests.conformance.clients_run import Client, Told, ask, who_can
from tests.conformance.scripted_gateway import KEY, MODEL, scripted_gateway
from tests.fakes.scripted import PROMPT_IDS, Scripted, made

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Ran:
    client: Client
    told: Told
    engine: Scripted

    def saw(self, thing: str) -> Any:
        assert "saw" in self.told[thing], self.told[thing]
        return self.told[thing]["saw"]

    def raised(self, thing: str) -> Any:
        assert "raised" in self.told[thing], self.told[thing]
        return self.told[thing]["raised"]


@pytest.fixture(scope="module")
def runs(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Client], Any]:
    """One run for each client, made when the first test asks for it: what a script costs is its imports."""
    done: dict[str, Ran] = {}

    def run(client: Client) -> Ran:
        if client.name not in done:
            done[client.name] = asyncio.run(_run(client, redis_url, tmp_path_factory.mktemp(client.name)))
        return done[client.name]

    return run


async def _run(client: Client, redis_url: str, home: Path) -> Ran:
    async with scripted_gateway(redis_url) as (url, engine):
        return Ran(client, await ask(client, url, KEY, MODEL, client.things, home=home), engine)


@who_can("chat")
def test_a_whole_answer(runs: Any, client: Client) -> None:
    _expect_greeting(client, runs(client).saw("chat"))


@who_can("stream")
def test_a_streamed_answer(runs: Any, client: Client) -> None:
    saw = runs(client).saw("stream")
    _expect_greeting(client, saw)
    assert saw["pieces"] == made(script.GREETING), "the pieces come as the engine made them"


def _expect_greeting(client: Client, saw: Any) -> None:
    assert saw["text"] == script.GREETING.text
    assert (saw["prompt"], saw["completion"]) == (len(PROMPT_IDS), made(script.GREETING))
    if client.name != "llm":  # it tells nobody how an answer ended
        assert saw["finish"] == "stop"


@who_can("tools")
@pytest.mark.parametrize("thing", ["tools", "stream_tools"])
def test_a_tool_is_called_and_its_result_answered(runs: Any, client: Client, thing: str) -> None:
    ran = runs(client)
    saw = ran.saw(thing)
    assert saw["called"] == [["get_weather", {"city": "Paris"}]]
    assert saw["text"] == script.FORECAST.text
    bodies = [body for body in ran.engine.calls_of(script.WEATHER) if bool(body.get("stream")) == (thing != "tools")]
    *_, call, result = bodies[-1]["messages"]
    assert result["role"] == "tool"
    assert "21 degrees in Paris" in str(result["content"])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert call["tool_calls"][0]["id"].startswith("chatcmpl-tool-"), "the engine's own id"


@who_can("structured")
def test_a_typed_answer_by_schema(runs: Any, client: Client) -> None:
    ran = runs(client)
    assert ran.saw("structured") == {"name": "Ada", "born": 1815}
    formats = [body.get("response_format") for body in ran.engine.calls_of(script.PERSON)]
    schema = next(found["json_schema"]["schema"] for found in formats if found)
    assert set(schema["properties"]) == {"name", "born"}, "decode was told of the schema"
    assert formats == [body.get("response_format") for body in _prefills_of(ran, script.PERSON)], "and prefill too"


def _prefills_of(ran: Ran, cue: str) -> list[Any]:
    return [body for body in ran.engine.prefills if cue in str(body["messages"])]


@who_can("structured_by_tool")
def test_a_typed_answer_by_tool(runs: Any, client: Client) -> None:
    assert runs(client).saw("structured_by_tool") == {"name": "Ada", "born": 1815}


@who_can("stream_structured")
def test_a_typed_answer_that_grows_in_a_stream(runs: Any, client: Client) -> None:
    saw = runs(client).saw("stream_structured")
    assert (saw["name"], saw["born"]) == ("Ada", 1815)
    assert saw["partial"] > 1


@who_can("asked_again")
def test_an_answer_of_the_wrong_type_is_asked_for_again(runs: Any, client: Client) -> None:
    ran = runs(client)
    assert ran.saw("asked_again") == {"name": "Bob", "born": 1990}
    assert len(ran.engine.calls_of(script.AGAIN)) == 2


@who_can("models")
def test_models_with_a_slash_in_their_name(runs: Any, client: Client) -> None:
    assert runs(client).saw("models") == {"ids": [MODEL], "one": MODEL}


@who_can("chat")
@pytest.mark.parametrize(
    ("thing", "status", "words"),
    [("unknown_model", 404, "nope"), ("wrong_key", 401, "key"), ("bad_request", 400, script.REASON)],
)
def test_an_error_keeps_its_status_and_words(runs: Any, client: Client, thing: str, status: int, words: str) -> None:
    ran = runs(client)
    raised = ran.raised(thing)
    assert raised["status"] == status
    assert words in raised["message"]
    assert len(ran.engine.calls_of(script.BAD)) == 1, "a 400 is not asked again"


@who_can("chat")
@pytest.mark.parametrize("status", script.BUSY)
def test_a_busy_engine_is_asked_again(runs: Any, client: Client, status: int) -> None:
    ran = runs(client)
    assert ran.saw(f"busy_{status}")["text"] == script.AFTER_ALL.text
    assert len(ran.engine.calls_of(script.BUSY[status])) == 3


@who_can("chat")
def test_every_request_was_split(runs: Any, client: Client) -> None:
    engine = runs(client).engine
    assert len(engine.prefills) == len(engine.decodes)
    assert all(body["kv_transfer_params"]["remote_engine_id"] == "scripted" for body in engine.decodes)
