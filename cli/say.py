"""`duet say`: one answer, streamed to the terminal; with `-o` it is spoken too, and the speech goes to a file."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import complain, told
from cli.files import expect_writable, write_whole
from cli.http import URL, Refused, calling, expect_ok
from cli.speech import Heard, expect_spoken, expect_wav

if TYPE_CHECKING:
    import httpx

SILENT_FOR = 600.0
"""Seconds: a big prompt on a small machine takes its time until the first word."""
MAX_SEED = 2**63 - 1
"""As the gateway has it for a Talker. Below 0 a text's seed is the engine's to read: to vLLM -1 is none."""
VOICE = "ethan"


def say(
    text: Annotated[str, typer.Argument(help="What to say.")],
    url: Annotated[str, typer.Option(envvar="DUET_URL", help="The gateway.")] = URL,
    model: Annotated[str | None, typer.Option(help="The model's name [the first one that is served].")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before it.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="DUET_API_KEY", help="A client's key.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 for the likeliest answer.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MAX_SEED, help="The same seed is the same answer, and the same sound.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.wav", help="Have the answer spoken, into this file; 16 bit WAV."),
    ] = None,
    voice: Annotated[str | None, typer.Option(help=f"Who speaks, with -o [{VOICE}].")] = None,
    max_frames: Annotated[
        int | None, typer.Option(min=1, help="Longest speech in frames of 80 ms, with -o [the Talker's].")
    ] = None,
) -> None:
    """Say something and stream the answer to the terminal."""
    with told():
        if out is not None:
            expect_wav(out)
        else:
            expect_spoken({"--voice": voice, "--max-frames": max_frames})
    with calling(url, api_key, silent_for=SILENT_FOR) as client:
        if out is not None:
            expect_writable(out)  # before anything is asked for that would then be lost
        body = request(
            text, model or first_model(client), system, max_tokens, {"temperature": temperature, "seed": seed}
        )
        if out is None:
            show(text_of(deltas(client, body)))
        else:
            hear(client, body | spoken(VOICE if voice is None else voice, max_frames), out)


def hear(client: httpx.Client, body: dict[str, Any], out: Path) -> None:
    """Whatever ends the answer early, Ctrl-C too, what was heard of it is kept. Raises Refused as `deltas` and
    `write_whole` do, and if nothing was said."""
    heard = Heard()
    try:
        show(heard.text(deltas(client, body)))
    except BaseException:
        if heard.pcm:
            keep(heard, out)
        raise
    write_whole(out, heard.wav())
    typer.echo(heard.report(out), err=True)


def keep(heard: Heard, out: Path) -> None:
    """A part of an answer. Raises nothing where it cannot: what ended the answer is still to be told."""
    try:
        write_whole(out, heard.wav())
    except Refused as e:
        complain(str(e))
    else:
        typer.echo(f"{heard.seconds:.2f} s of sound, not all of it, in {out}", err=True)


def request(
    text: str, model: str, system: str | None, max_tokens: int, sampling: dict[str, float | None]
) -> dict[str, Any]:
    """`sampling` are fields of the request; one that is None is left to the engine."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    body: dict[str, Any] = {
        "model": model,
        "messages": [*messages, {"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "stream": True,
    }
    return body | {name: value for name, value in sampling.items() if value is not None}


def spoken(voice: str, max_frames: int | None) -> dict[str, Any]:
    """What a request has beside the usual for an answer that is spoken."""
    audio: dict[str, Any] = {"voice": voice, "format": "pcm16"}
    if max_frames is not None:
        audio["sampling"] = {"max_frames": max_frames}
    return {"modalities": ["text", "audio"], "audio": audio}


def show(pieces: Iterator[str]) -> None:
    """As they come. Whatever ends them, the line is ended too. What would steer a terminal is shown there instead."""
    seen = shown if sys.stdout.isatty() else str
    begun = False
    try:
        for piece in pieces:
            begun = True
            typer.echo(seen(piece), nl=False)
    finally:
        if begun:
            typer.echo()


def shown(text: str) -> str:
    """Control characters but line breaks and tabs as Python writes them."""
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def first_model(client: httpx.Client) -> str:
    """Raises Refused if the server has none, or is no OpenAI server."""
    reply = client.get("/v1/models")
    expect_ok(reply)
    try:
        models = [str(model["id"]) for model in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{reply.url} is no list of models; is this a Duet gateway?") from None
    if not models:
        raise Refused("the gateway serves no model yet")
    return models[0]


def text_of(deltas: Iterator[dict[str, Any]]) -> Iterator[str]:
    return (delta.get("content") or "" for delta in deltas)


def deltas(client: httpx.Client, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pieces of the answer as they come. Raises Refused with the server's message, or if the stream is cut."""
    with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            reply.read()
            expect_ok(reply)
        for line in reply.iter_lines():
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise Refused(event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"]
    raise Refused("the answer broke off")
