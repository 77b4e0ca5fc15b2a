"""`duet register`: announces an engine that cannot do it itself, such as stock vLLM."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Annotated, Any

import typer

from cli.errors import told
from common.engine import Role


def register(
    url: Annotated[str, typer.Option(metavar="URL", help="The engine's base URL, as gateways reach it.")],
    role: Annotated[Role, typer.Option(help="What it is for.")],
    registry: Annotated[
        str, typer.Option(envvar="DUET_REGISTRY_URL", metavar="URL", help="Redis or Valkey of the gateways.")
    ],
    prefix: Annotated[
        str, typer.Option(envvar="DUET_REDIS_PREFIX", help="What every key starts with, as gateways have it.")
    ] = "duet:",
    ask: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the engine is asked whether it answers [--url].")
    ] = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="Its KV connector.")] = None,
    model: Annotated[str | None, typer.Option(help="The name that it serves.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of its weights.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens in one KV block.")] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option(min=1, help="Its ranks.")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="Dtype of its KV.")] = None,
    vllm_version: Annotated[str | None, typer.Option(help="Its vLLM.")] = None,
) -> None:
    """Announce an engine while it answers, until Ctrl-C or SIGTERM: beside stock vLLM, which cannot do it itself.

    What is said of it here is held against the other engines, as what an engine says itself is.
    """
    with told():
        declared = {
            "connector": _connector(connector),
            "model": model,
            "revision": revision,
            "block_size": block_size,
            "tensor_parallel_size": tensor_parallel_size,
            "kv_cache_dtype": kv_cache_dtype,
            "vllm_version": vllm_version,
        }
        identity = {name: value for name, value in declared.items() if value is not None}
        run(url, role, identity, registry=registry, prefix=prefix, ask=ask)


def run(url: str, role: Role, identity: dict[str, Any], *, registry: str, prefix: str, ask: str | None) -> None:
    """Raises ConfigurationError for a URL that is none."""
    import logging
    from threading import Event
    from uuid import uuid4

    from common.engine import Engine
    from common.registry import Announcement, Announcer, health_of

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    stop = Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    asked = Engine.at(ask or url, role).url
    announcer = Announcer(
        registry,
        Announcement(url, role, "", 0.0, identity),  # a side-car that is started anew says nothing of the engine's life
        prefix=prefix,
        health=lambda: health_of(asked),
        new_life=lambda: uuid4().hex,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    announcer.run(stop)


def _connector(name: str | None) -> str | None:
    """vLLM's name of it. Raises ConfigurationError for one that is not known."""
    from common.connectors import connector

    return None if name is None else connector(name).name
