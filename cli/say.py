"""`duet say`: one answer, streamed to the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import typer

URL = "http://127.0.0.1:8000"


class SayFailed(Exception):
    """What the server said instead of an answer."""


def say(
    text: Annotated[str, typer.Argument(help="What to say.")],
    url: Annotated[str, typer.Option(envvar="DUET_URL", help="The gateway.")] = URL,
    model: Annotated[str | None, typer.Option(help="By default the first one that the gateway serves.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before it.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="DUET_API_KEY", help="A client's key.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 for the likeliest answer.")] = None,
) -> None:
    """Say something and stream the answer to the terminal."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    messages = [{"role": "system", "content": system}] if system else []
    body: dict[str, Any] = {
        "messages": [*messages, {"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "stream": True,
    }
    if temperature is not None:
        body["temperature"] = temperature
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(600, connect=5)) as client:
            body["model"] = model or first_model(client)
            for piece in stream(client, body):
                typer.echo(piece, nl=False)
        typer.echo()
    except SayFailed as e:
        typer.echo(f"duet: {e}", err=True)
        raise typer.Exit(1) from None
    except httpx.HTTPError as e:
        typer.echo(f"duet: {url}: {e or type(e).__name__}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(130) from None


def first_model(client: httpx.Client) -> str:
    reply = client.get("/v1/models")
    _expect_ok(reply)
    models = reply.json()["data"]
    if not models:
        raise SayFailed("the gateway serves no model yet")
    return str(models[0]["id"])


def stream(client: httpx.Client, body: dict[str, Any]) -> Iterator[str]:
    """The pieces of the answer as they come. Raises SayFailed with the server's message."""
    with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            reply.read()
            _expect_ok(reply)
        for line in reply.iter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            event = json.loads(data)
            if "error" in event:
                raise SayFailed(event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""


def _expect_ok(reply: httpx.Response) -> None:
    if reply.status_code == 200:
        return
    try:
        message = reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = reply.text[:200]
    raise SayFailed(f"{reply.status_code}: {message}")
