"""`duet`: the names of the commands. Each imports what it needs when it is called, so that `--help` is quick."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from cli import engine, gateway, register, say, status, up
from cli.doctor import command as doctor
from cli.topology import command as topology

app = typer.Typer(
    name="duet",
    help="A prefill/decode gateway for vLLM: prefill and decode on separate engines, one OpenAI-compatible stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"duet {version('duet')}")
        raise typer.Exit


@app.callback()
def duet(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command("up")(up.up)
app.command("gateway")(gateway.gateway)
app.command("register")(register.register)
app.command("say")(say.say)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.add_typer(engine.app, name="engine")
app.add_typer(topology.app, name="topology")

if __name__ == "__main__":
    app()
