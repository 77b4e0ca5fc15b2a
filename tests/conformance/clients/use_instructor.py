"""instructor over openai: typed answers by tool and by schema, growing in a stream, asked again; errors, retries."""

from __future__ import annotations

from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel
from telling import API_KEY, BASE_URL, MODEL, PERSON, tell


class Person(BaseModel):
    name: str
    born: int


def client(mode: instructor.Mode = instructor.Mode.TOOLS, key: str = API_KEY) -> Any:
    return instructor.from_openai(OpenAI(base_url=BASE_URL, api_key=key), mode=mode)


def chat(text: str = "Say hello.", key: str = API_KEY, **options: Any) -> dict[str, Any]:
    answer = client(key=key).chat.completions.create(response_model=None, **_asked(text, **options))
    choice = answer.choices[0]
    use = answer.usage
    told = {"finish": choice.finish_reason, "prompt": use.prompt_tokens, "completion": use.completion_tokens}
    return {"text": choice.message.content, **told}


def structured(mode: instructor.Mode, text: str = PERSON) -> dict[str, Any]:
    return client(mode).chat.completions.create(response_model=Person, **_asked(text)).model_dump()


def stream_structured() -> dict[str, Any]:
    """The last of the partial answers is the whole one, and there were some before it."""
    partial = list(client().chat.completions.create_partial(response_model=Person, **_asked(PERSON)))
    return {**partial[-1].model_dump(), "partial": len(partial)}


def _asked(text: str, **options: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 40,
        "temperature": 0,
        **options,
    }


tell(
    {
        "chat": chat,
        "structured": lambda: structured(instructor.Mode.JSON_SCHEMA),
        "structured_by_tool": lambda: structured(instructor.Mode.TOOLS),
        "stream_structured": stream_structured,
        "asked_again": lambda: structured(instructor.Mode.TOOLS, "Who is Bob?"),
        "unknown_model": lambda: chat(model="nope"),
        "wrong_key": lambda: chat(key="wrong"),
        "bad_request": lambda: chat("Bad.", temperature=-9),
        "busy_429": lambda: chat("Busy 429."),
        "busy_503": lambda: chat("Busy 503."),
    }
)
