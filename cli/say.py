"""`duet say`: one answer, streamed to the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import complain

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8000"
CONNECT_WITHIN = 5.0
SILENT_FOR = 600.0
"""Seconds: a big prompt on a small machine takes its time until the first word."""


class SayFailed(Exception):
    """What the server said instead of an answer."""


def say(
    text: Annotated[str, typer.Argument(help="What to say.")],
    url: Annotated[str, typer.Option(envvar="DUET_URL", help="The gateway.")] = URL,
    model: Annotated[str | None, typer.Option(help="The model's name [the first one that is served].")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before it.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="DUET_API_KEY", help="A client's key.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 for the likeliest answer.")] = None,
) -> None:
    """Say something and stream the answer to the terminal."""
    import httpx

    timeout = httpx.Timeout(SILENT_FOR, connect=CONNECT_WITHIN)
    try:
        with httpx.Client(base_url=url, headers=_authorization(api_key), timeout=timeout) as client:
            body = request(text, model or first_model(client), system, max_tokens, temperature)
            show(stream(client, body))
    except SayFailed as e:
        complain(str(e))
        raise typer.Exit(1) from None
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        complain(f"{url}: {e or type(e).__name__}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def request(text: str, model: str, system: str | None, max_tokens: int, temperature: float | None) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system is not None else []
    body: dict[str, Any] = {
        "model": model,
        "messages": [*messages, {"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "stream": True,
    }
    return body if temperature is None else body | {"temperature": temperature}


def show(pieces: Iterator[str]) -> None:
    """As they come. Whatever ends them, the line is ended too."""
    begun = False
    try:
        for piece in pieces:
            begun = True
            typer.echo(piece, nl=False)
    finally:
        if begun:
            typer.echo()


def first_model(client: httpx.Client) -> str:
    """Raises SayFailed if the server has none, or is no OpenAI server."""
    reply = client.get("/v1/models")
    _expect_ok(reply)
    try:
        models = [str(model["id"]) for model in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        raise SayFailed(f"{reply.url} is no list of models; is this a Duet gateway?") from None
    if not models:
        raise SayFailed("the gateway serves no model yet")
    return models[0]


def stream(client: httpx.Client, body: dict[str, Any]) -> Iterator[str]:
    """The pieces of the answer as they come. Raises SayFailed with the server's message, or if the stream is cut."""
    with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            reply.read()
            _expect_ok(reply)
        for line in reply.iter_lines():
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise SayFailed(event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""
    raise SayFailed("the answer broke off")


def _authorization(key: str | None) -> dict[str, str]:
    """The variable may hold several keys, as the gateway's own does: any of them will do."""
    keys = (key or "").replace(",", " ").split()
    return {"authorization": f"Bearer {keys[0]}"} if keys else {}


def _expect_ok(reply: httpx.Response) -> None:
    if reply.status_code == 200:
        return
    try:
        message = reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = reply.text.strip()[:200] or reply.reason_phrase
    raise SayFailed(f"{reply.status_code}: {message}")
