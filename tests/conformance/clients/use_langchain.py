"""langchain-openai's ChatOpenAI: chat, streams, tools bound and answered, structured output, errors, retries."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from telling import API_KEY, BASE_URL, MODEL, PERSON, WEATHER, tell


class Person(BaseModel):
    name: str
    born: int


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


def llm(**options: Any) -> ChatOpenAI:
    server = {"base_url": BASE_URL, "api_key": API_KEY, "model": MODEL}
    return ChatOpenAI(**{**server, "max_tokens": 40, "temperature": 0, **options})


def chat(text: str = "Say hello.", **options: Any) -> dict[str, Any]:
    return _told(llm(**options).invoke(text))


def stream() -> dict[str, Any]:
    chunks = list(llm(stream_usage=True).stream("Say hello."))
    return {**_told(reduce(add, chunks)), "pieces": sum(bool(chunk.content) for chunk in chunks)}


def tools() -> dict[str, Any]:
    return _round_trip(lambda bound, messages: bound.invoke(messages))


def stream_tools() -> dict[str, Any]:
    return _round_trip(lambda bound, messages: reduce(add, bound.stream(messages)))


def _round_trip(ask: Any) -> dict[str, Any]:
    bound = llm().bind_tools([get_weather])
    messages: list[Any] = [HumanMessage(WEATHER)]
    first = ask(bound, messages)
    answers = [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    last = ask(bound, [*messages, first, *answers])
    return {"called": [[call["name"], call["args"]] for call in first.tool_calls], "text": last.content}


def structured(method: str = "json_schema") -> dict[str, Any]:
    return llm().with_structured_output(Person, method=method).invoke(PERSON).model_dump()


def _told(message: Any) -> dict[str, Any]:
    use = message.usage_metadata
    return {
        "text": message.content,
        "finish": message.response_metadata["finish_reason"],
        "prompt": use["input_tokens"],
        "completion": use["output_tokens"],
    }


tell(
    {
        "chat": chat,
        "stream": stream,
        "tools": tools,
        "stream_tools": stream_tools,
        "structured": structured,
        "structured_by_tool": lambda: structured("function_calling"),
        "unknown_model": lambda: chat(model="nope"),
        "wrong_key": lambda: chat(api_key="wrong"),
        "bad_request": lambda: chat("Bad.", temperature=-9),
        "busy_429": lambda: chat("Busy 429."),
        "busy_503": lambda: chat("Busy 503."),
    }
)
