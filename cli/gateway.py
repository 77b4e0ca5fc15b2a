"""`duet gateway`. Flags are named as users of vllm-router know them; each beats its `DUET_*` variable."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from typing import Annotated, Any

import typer

from cli.errors import told


def _once_for_each(what: str) -> Any:
    return typer.Option(metavar="URL", help=f"{what}; once for each.")


PrefillUrls = Annotated[list[str] | None, _once_for_each("Base URL of a prefill engine")]
DecodeUrls = Annotated[list[str] | None, _once_for_each("Base URL of a decode engine")]
TalkerUrls = Annotated[
    list[str] | None,
    _once_for_each("Base URL of a Talker, which speaks what is said, as codes: without one there is no speech"),
]
Code2WavUrls = Annotated[
    list[str] | None, _once_for_each("Base URL of a Code2Wav server, which makes sound of a Talker's codes")
]


def gateway(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one [8000].")] = None,
    prefill: PrefillUrls = None,
    decode: DecodeUrls = None,
    talkers: TalkerUrls = None,
    code2wavs: Code2WavUrls = None,
    registry: Annotated[
        bool | None, typer.Option("--registry/--no-registry", help="Take engines that announce themselves in Redis.")
    ] = None,
    engines_file: Annotated[
        str | None, typer.Option(metavar="PATH", help="File that lists engines, read again when it changes.")
    ] = None,
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
    admin_port: Annotated[int | None, typer.Option(help="Port for /admin, which is then nowhere else.")] = None,
    engine_api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Key that engines ask for.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
) -> None:
    """Serve the gateway.

    Every setting can also come from the environment as DUET_<NAME>, or from a file .env; .env.example lists them all.
    Keys are better set there: a command line is seen by every user of the machine.
    """
    given = {name: value for name, value in ctx.params.items() if value not in (None, [], ())}
    with told(given), ExitStack() as stack:
        run(given, stack)


def run(given: dict[str, Any], stack: ExitStack) -> None:
    """Starts what is missing and serves. Raises ConfigurationError or pydantic's ValidationError before it does."""
    from pydantic import SecretStr

    from common.errors import ConfigurationError
    from common.ports import require_free
    from common.valkey import EmbeddedValkey
    from gateway.bootstrap import serve
    from gateway.named import connector_of, engines_of, other_sources, speech_engines_of
    from gateway.settings import Settings

    settings = Settings(**given)
    kv = connector_of(settings)
    engines_of(settings, kv)  # a wrong engine is told before anything is started
    speech_engines_of(settings)
    other_sources(settings, kv)
    if settings.registry and settings.redis_url is None:
        raise ConfigurationError(
            "a registry is where engines reach it, too: expected --redis-url URL or DUET_REDIS_URL"
        )
    require_free(settings.host, settings.port)
    if settings.admin_port is not None:
        require_free(settings.admin_address, settings.admin_port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # uvicorn ends in order, and then raises the signal that ended it again
        if settings.redis_url is None:
            valkey = stack.enter_context(EmbeddedValkey())
            typer.echo("no Redis URL is set: records are kept in an embedded Valkey, by this gateway alone", err=True)
            settings = settings.model_copy(update={"redis_url": SecretStr(valkey.url)})
        serve(settings)
