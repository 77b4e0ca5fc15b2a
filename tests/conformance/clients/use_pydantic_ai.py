"""pydantic-ai's Agent: chat, streams, tools it calls by itself, typed output both ways, errors, retries."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from telling import API_KEY, BASE_URL, MODEL, PERSON, WEATHER, tell


class Person(BaseModel):
    name: str
    born: int


def model(name: str = MODEL, key: str = API_KEY) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=BASE_URL, api_key=key))


def chat(text: str = "Say hello.", of: OpenAIChatModel | None = None, **settings: Any) -> dict[str, Any]:
    agent = Agent(of or model(), model_settings={"max_tokens": 40, "temperature": 0, **settings})
    return _told(agent.run_sync(text))


def stream() -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with Agent(model(), model_settings={"max_tokens": 40, "temperature": 0}).run_stream(
            "Say hello."
        ) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            use = result.usage
        told = {"prompt": use.input_tokens, "completion": use.output_tokens, "finish": result.response.finish_reason}
        return {"text": "".join(pieces), "pieces": len(pieces), **told}

    return asyncio.run(run())


def weather_agent() -> tuple[Agent, list[Any]]:
    called: list[Any] = []
    agent = Agent(model())

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(["get_weather", {"city": city}])
        return f"21 degrees in {city}"

    return agent, called


def tools() -> dict[str, Any]:
    agent, called = weather_agent()
    return {"text": agent.run_sync(WEATHER).output, "called": called}


def stream_tools() -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        agent, called = weather_agent()
        async with agent.run_stream(WEATHER) as result:
            return {"text": await result.get_output(), "called": called}

    return asyncio.run(run())


def structured(output: Any) -> dict[str, Any]:
    return Agent(model(), output_type=output).run_sync(PERSON).output.model_dump()


def _told(result: Any) -> dict[str, Any]:
    use = result.usage
    return {
        "text": result.output,
        "finish": result.response.finish_reason,
        "prompt": use.input_tokens,
        "completion": use.output_tokens,
    }


tell(
    {
        "chat": chat,
        "stream": stream,
        "tools": tools,
        "stream_tools": stream_tools,
        "structured": lambda: structured(NativeOutput(Person)),
        "structured_by_tool": lambda: structured(Person),
        "unknown_model": lambda: chat(of=model("nope")),
        "wrong_key": lambda: chat(of=model(key="wrong")),
        "bad_request": lambda: chat("Bad.", temperature=-9),
        "busy_429": lambda: chat("Busy 429."),
        "busy_503": lambda: chat("Busy 503."),
    }
)
