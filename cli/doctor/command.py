"""`duet doctor`. It takes what `duet gateway` takes, so that a command line can be tried before it serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import told
from cli.gateway import Code2WavUrls, DecodeUrls, PrefillUrls, TalkerUrls

if TYPE_CHECKING:
    from cli.doctor.finding import Finding
    from gateway.settings import Settings

WITHIN = 15.0
"""Seconds for one answer: the first transfer between two engines makes their connection, which takes some."""
OWN = ("json", "probe", "timeout")
"""Options that are no settings."""


def doctor(
    ctx: typer.Context,
    prefill: PrefillUrls = None,
    decode: DecodeUrls = None,
    talkers: TalkerUrls = None,
    code2wavs: Code2WavUrls = None,
    registry: Annotated[
        bool | None, typer.Option("--registry/--no-registry", help="Take engines that announce themselves in Redis.")
    ] = None,
    engines_file: Annotated[str | None, typer.Option(metavar="PATH", help="File that lists engines.")] = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="The engines' KV connector.")] = None,
    kv_lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    redis_url: Annotated[str | None, typer.Option(metavar="URL", help="Redis or Valkey.")] = None,
    engine_api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Key that engines ask for.")] = None,
    host: Annotated[str | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    port: Annotated[int | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    api_key: Annotated[list[str] | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    admin_key: Annotated[str | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    admin_port: Annotated[int | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    log_level: Annotated[str | None, typer.Option(help="Not looked at.", hidden=True)] = None,
    probe: Annotated[
        bool, typer.Option(help="Send requests of one token through both legs; without it nothing is handed over.")
    ] = True,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Longest wait for one answer.")] = WITHIN,
    json: Annotated[bool, typer.Option("--json", help="For programs; docs/doctor.md has the form.")] = False,
) -> None:
    """Look for what is wrong with this machine, Redis and the engines, and say what to do about it.

    Takes the flags, the variables DUET_* and the file .env that `duet gateway` takes. The exit status is 1 if a fault
    was found, else 0; 2 for a setting that cannot be read.
    """
    given = {name: value for name, value in ctx.params.items() if value not in (None, [], ()) and name not in OWN}
    with told(given):
        raise typer.Exit(run(given, within=timeout, probe=probe, as_json=json))


def run(given: dict[str, Any], *, within: float, probe: bool, as_json: bool) -> int:
    """Prints the findings; the exit status. Raises pydantic's ValidationError for a setting that cannot be read."""
    from rich.console import Console

    from cli.doctor import show
    from cli.doctor.finding import Severity, count
    from gateway.settings import Settings

    settings = Settings(**given)
    console = Console(highlight=False)
    if as_json or not console.is_terminal:
        findings = _look(settings, within, probe)
    else:
        with console.status("Looking at machine, Redis and engines …"):
            findings = _look(settings, within, probe)
    if as_json:
        typer.echo(show.as_json(findings))
    else:
        show.as_text(findings, console)
    return 1 if count(findings)[Severity.FAULT] else 0


def _look(settings: Settings, within: float, probe: bool) -> list[Finding]:
    """All findings; those of this machine alone where the packages are missing that the rest is looked at with."""
    from cli.doctor import installation, machine

    installed = installation.look()
    if installed.missing:
        return [*machine.judge(machine.look()), *installation.judge(installed)]
    from cli.doctor.examine import examine

    return asyncio.run(examine(settings, within=within, probe=probe))
