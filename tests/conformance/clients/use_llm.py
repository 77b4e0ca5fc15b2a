"""llm with a model that stands in `extra-openai-models.yaml`: chat, streams, tools, schemas, errors, retries."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from telling import API_KEY, BASE_URL, MODEL, PERSON, WEATHER, tell

MODELS = """
- model_id: duet
  model_name: {model}
  api_base: {url}
  api_key_name: duet
  supports_tools: true
  supports_schema: true
- model_id: missing
  model_name: nope
  api_base: {url}
  api_key_name: duet
"""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
}


def model(name: str = "duet") -> Any:
    import llm  # looks for its folder as it is imported

    return llm.get_model(name)


def chat(text: str = "Say hello.", name: str = "duet", key: str = API_KEY, **options: Any) -> dict[str, Any]:
    return _told(model(name).prompt(text, stream=False, key=key, **{"max_tokens": 40, "temperature": 0, **options}))


def stream() -> dict[str, Any]:
    answer = model().prompt("Say hello.", stream=True, key=API_KEY, max_tokens=40, temperature=0)
    pieces = [piece for piece in answer if piece]
    return {**_told(answer), "pieces": len(pieces)}


def tools(*, streamed: bool = False) -> dict[str, Any]:
    called: list[Any] = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(["get_weather", {"city": city}])
        return f"21 degrees in {city}"

    chain = model().chain(WEATHER, tools=[get_weather], key=API_KEY, stream=streamed)
    return {"text": chain.text(), "called": called}


def structured() -> dict[str, Any]:
    return json.loads(model().prompt(PERSON, schema=SCHEMA, stream=False, key=API_KEY).text())


def _told(answer: Any) -> dict[str, Any]:
    text, use = answer.text(), answer.usage()
    return {"text": text, "prompt": use.input, "completion": use.output}


with TemporaryDirectory() as home:
    os.environ["LLM_USER_PATH"] = home
    Path(home, "extra-openai-models.yaml").write_text(MODELS.format(model=MODEL, url=BASE_URL))
    tell(
        {
            "chat": chat,
            "stream": stream,
            "tools": tools,
            "stream_tools": lambda: tools(streamed=True),
            "structured": structured,
            "unknown_model": lambda: chat(name="missing"),
            "wrong_key": lambda: chat(key="wrong"),
            "bad_request": lambda: chat("Bad.", max_tokens=-9),
            "busy_429": lambda: chat("Busy 429."),
            "busy_503": lambda: chat("Busy 503."),
        }
    )
