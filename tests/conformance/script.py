"""What the scripted engine says to whom: the words that the clients' scripts say, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping

from engines.sim.shapes import Json
from tests.fakes.scripted import Answers, Refusal, Text, ToolCall

HELLO, WEATHER, PERSON, AGAIN, BAD = "Say hello.", "What is the weather in Paris?", "Who is Ada?", "Who is Bob?", "Bad."
BUSY = {429: "Busy 429.", 503: "Busy 503."}

GREETING = Text("Hello there, and welcome to you.")
FORECAST = Text("It is 21 degrees in Paris.")
ADA = '{"name": "Ada", "born": 1815}'
BOB = '{"name": "Bob", "born": 1990}'
AFTER_ALL = Text("Here I am.")
REASON = "temperature must be non-negative, got -9.0."
SOON = 0.05
"""Seconds that a busy engine asks for."""


def book() -> Mapping[str, Answers]:
    """Every client asks each thing at most twice: whole and streamed, or by schema and by tool."""
    busy: Mapping[str, Answers] = {
        cue: [Refusal(status, "busy", SOON), Refusal(status, "busy", SOON), AFTER_ALL] for status, cue in BUSY.items()
    }
    return {
        HELLO: [GREETING] * 2,
        WEATHER: [_weather] * 4,
        PERSON: [lambda body: _typed(body, ADA)] * 3,
        AGAIN: [lambda body: _typed(body, '{"name": "Bob"}'), lambda body: _typed(body, BOB)],
        BAD: [Refusal(400, REASON)],
        **busy,
    }


def _weather(body: Json) -> Text | ToolCall:
    """The call, and once its result is there the answer to it."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return FORECAST
    return ToolCall("get_weather", {"city": "Paris"})


def _typed(body: Json, value: str) -> Text | ToolCall:
    """By the tool that the client offers, else as text, as its `response_format` wants it."""
    tools = body.get("tools")
    return ToolCall(tools[0]["function"]["name"], value) if tools else Text(value)
