"""litellm's completion() with an OpenAI-compatible server: chat, streams, tools, structured output, errors, retries."""

from __future__ import annotations

import json
from typing import Any

import litellm
from pydantic import BaseModel
from telling import API_KEY, BASE_URL, MODEL, PERSON, WEATHER, tell

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


class Person(BaseModel):
    name: str
    born: int


def ask(messages: Any, **options: Any) -> Any:
    server = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": API_KEY, "max_tokens": 40, "temperature": 0}
    return litellm.completion(messages=messages, **{**server, **options})


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def chat(text: str = "Say hello.", **options: Any) -> dict[str, Any]:
    return _told(ask(said(text), **options))


def stream() -> dict[str, Any]:
    chunks = list(ask(said("Say hello."), stream=True, stream_options={"include_usage": True}))
    pieces = sum(bool(chunk.choices[0].delta.content) for chunk in chunks if chunk.choices)
    return {**_told(litellm.stream_chunk_builder(chunks)), "pieces": pieces}


def tools() -> dict[str, Any]:
    return _round_trip(lambda messages: ask(messages, tools=TOOLS))


def stream_tools() -> dict[str, Any]:
    return _round_trip(lambda messages: litellm.stream_chunk_builder(list(ask(messages, tools=TOOLS, stream=True))))


def _round_trip(ask_with_tools: Any) -> dict[str, Any]:
    messages = said(WEATHER)
    first = ask_with_tools(messages).choices[0].message
    messages.append(first)
    called = []
    for call in first.tool_calls:
        called.append([call.function.name, json.loads(call.function.arguments)])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees in Paris"})
    return {"called": called, "text": ask_with_tools(messages).choices[0].message.content}


def structured() -> dict[str, Any]:
    answer = ask(said(PERSON), response_format=Person)
    return Person.model_validate_json(answer.choices[0].message.content).model_dump()


def _told(answer: Any) -> dict[str, Any]:
    choice, use = answer.choices[0], answer.usage
    return {
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "prompt": use.prompt_tokens,
        "completion": use.completion_tokens,
    }


tell(
    {
        "chat": chat,
        "stream": stream,
        "tools": tools,
        "stream_tools": stream_tools,
        "structured": structured,
        "unknown_model": lambda: chat(model="openai/nope"),
        "wrong_key": lambda: chat(api_key="wrong"),
        "bad_request": lambda: chat("Bad.", temperature=-9),
        "busy_429": lambda: chat("Busy 429.", num_retries=2),
        "busy_503": lambda: chat("Busy 503.", num_retries=2),
    }
)
