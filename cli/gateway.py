"""`duet gateway`. Flags are named as users of vllm-router know them; each beats its `DUET_*` variable."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from cli.errors import told

Urls = Annotated[list[str] | None, typer.Option(metavar="URL", help="Base URL of an engine; once for each.")]


def gateway(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (8000).")] = None,
    prefill: Urls = None,
    decode: Urls = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="The engines' KV connector.")] = None,
    kv_lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Redis or Valkey; without it an embedded Valkey is started.")
    ] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A key that clients may use; once for each.")
    ] = None,
    admin_key: Annotated[str | None, typer.Option(metavar="KEY", help="Key for the admin endpoints.")] = None,
    engine_api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Key that engines ask for.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error (info).")] = None,
) -> None:
    """Serve the gateway.

    Every setting can also come from the environment as DUET_<NAME>, or from a file .env; .env.example lists them all.
    """
    given = {name: value for name, value in ctx.params.items() if value not in (None, [], ())}
    with told(), ExitStack() as stack:
        run(given, stack)


def run(given: dict[str, Any], stack: ExitStack) -> None:
    """Starts what is missing and serves. Raises ConfigurationError or ValidationError before it does."""
    from gateway.bootstrap import engines_of, serve
    from gateway.settings import Settings

    settings = Settings(**given)
    engines_of(settings)  # a wrong engine is told before anything is started
    if settings.redis_url is None:
        from common.valkey import EmbeddedValkey

        valkey = stack.enter_context(EmbeddedValkey())
        typer.echo(
            "no --redis-url: this gateway keeps its records in an embedded Valkey, alone and in memory", err=True
        )
        settings = Settings(**given, redis_url=SecretStr(valkey.url))
    serve(settings)
