"""`duet topology expand|check|show FILE`.

The exit status is 0 for a file that can work, 1 for one that is refused, and 2 for one that cannot be read or a flag
that cannot be right.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import complain, told

if TYPE_CHECKING:
    from common.topology import Expansion, Fault

FORMAT = 1
"""Of the JSON forms. Fields may be added, none leaves or changes its meaning."""

app = typer.Typer(
    help="Read a deploy file: what it says, whether it can work.", no_args_is_help=True, rich_markup_mode=None
)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A deploy file (docs/topology.md).")]
PdOption = Annotated[bool | None, typer.Option("--pd/--no-pd", help="Split the Thinker, or do not [as the file says].")]
PlatformOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="As it is on cpu, cuda, musa, npu, rocm or xpu, and there only.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.callback()
def topology() -> None:
    """Read a deploy file: what it says, whether it can work."""


@app.command("expand")
def expand(file: FileArgument, pd: PdOption = None, platform: PlatformOption = None, json: JsonOption = False) -> None:
    """Print all stages as one file: three as the file has them, or the four of a split."""
    with refused(file, as_json=json):
        expansion = planned(file, pd, platform)
        from common.topology.write import as_json, as_yaml

        typer.echo(_json(as_json(expansion)) if json else as_yaml(expansion), nl=json)


@app.command("check")
def check(file: FileArgument, pd: PdOption = None, platform: PlatformOption = None, json: JsonOption = False) -> None:
    """Say what is wrong with it, a line for each fault."""
    with refused(file, as_json=json):
        expansion = planned(file, pd, platform)
        typer.echo(_json({"file": str(file), "ok": True, "faults": []}) if json else f"{file}: {_summary(expansion)}")


@app.command("show")
def show(
    file: FileArgument,
    pd: PdOption = None,
    platform: PlatformOption = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    json: JsonOption = False,
) -> None:
    """Draw the stages and what goes between them."""
    with refused(file, as_json=json):
        expansion = planned(file, pd, platform)
        from cli.topology.draw import as_mermaid, as_text
        from cli.topology.graph import Graph

        graph = Graph.of(expansion.topology)
        if json:
            typer.echo(_json(graph.as_json()))
        else:
            typer.echo(as_mermaid(graph) if mermaid else as_text(graph))


def planned(file: Path, pd: bool | None, platform: str | None) -> Expansion:
    """The file's stages, split or not, checked. Raises ConfigurationError for a platform that is none, and as
    `common.topology.plan` does."""
    from dataclasses import replace

    from common.errors import ConfigurationError
    from common.topology import plan
    from common.topology.names import PLATFORMS

    if platform is not None and platform not in PLATFORMS:
        raise ConfigurationError(f"--platform {platform!r}: expected one of {', '.join(PLATFORMS)}")
    expansion = plan(file, pd=pd, platform=platform)
    if platform is None:
        return expansion
    notes = tuple(note for note in expansion.notes if note.platform in (None, platform))
    return replace(expansion, topology=expansion.topology.on(platform), notes=notes)


@contextmanager
def refused(file: Path, *, as_json: bool) -> Iterator[None]:
    """Turns TopologyInvalid into its faults and an exit with 1; with 2 if there is no file to judge. As JSON the faults
    are an answer, on stdout; else they are lines on stderr."""
    from common.topology import FileUnreadable, TopologyInvalid

    with told():
        try:
            yield
        except TopologyInvalid as e:
            if as_json:
                typer.echo(_json({"file": str(file), "ok": False, "faults": [_row(fault) for fault in e.faults]}))
            else:
                for fault in e.faults:
                    complain(str(fault))
            raise typer.Exit(2 if isinstance(e, FileUnreadable) else 1) from None


def _row(fault: Fault) -> dict[str, Any]:
    place = fault.place
    return {"rule": fault.rule, "line": place.line, "path": str(place), "what": fault.what, "do": fault.do}


def _json(value: dict[str, Any]) -> str:
    return jsonlib.dumps({"format": FORMAT, **value}, indent=2, ensure_ascii=False)


def _summary(expansion: Expansion) -> str:
    topology = expansion.topology
    stages = f"{len(topology.stages)} stage{'s' if len(topology.stages) > 1 else ''}"
    kinds = ", ".join(stage.short for stage in topology)
    if topology.pair is None:
        return f"{stages}: {kinds}; the Thinker is not split"
    from common.topology.kv import connector_of

    kv = connector_of(topology)
    return f"{stages}: {kinds}; KV by {kv.name if kv else None}"
