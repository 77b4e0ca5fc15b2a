"""`duet status`: engines, load and requests of a running gateway, over its admin API."""

from __future__ import annotations

import json as jsonlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.http import URL, Refused, calling, expect_ok, get

if TYPE_CHECKING:
    import httpx
    from rich.console import Group

ANSWER_WITHIN = 10.0
NEWEST = 200
"""Requests that are looked at: all replicas' newest ones. Counts by state are of these."""
SHOWN = 10
ID_WIDTH = 24
"""Characters of a request's id: it is there to be copied, where there is room for it."""
MIN_WIDTHS = {"request": 8, "state": 10, "age": 6, "engine": 21, "role": 7, "load": 4, "error": 16, "fault": 16}
"""Characters that a column keeps in a narrow terminal."""
WIDTH = 160
"""Characters of a line where there is no terminal to ask."""
LIVE = ("accepted", "prefilling", "prefilled", "decoding")


@dataclass(frozen=True, slots=True)
class Status:
    """The admin API's own JSON: `/admin/topology`, and the newest of `/admin/requests`."""

    topology: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]

    @property
    def states(self) -> dict[str, int]:
        """How many of the newest requests are in each state; those that run first."""
        found = Counter(str(r["state"]) for r in self.requests)
        return {state: found[state] for state in sorted(found, key=lambda s: (s not in LIVE, s))}


def status(
    url: Annotated[str, typer.Option(envvar="DUET_URL", help="The gateway.")] = URL,
    admin_key: Annotated[str | None, typer.Option(envvar="DUET_ADMIN_KEY", help="The admin's key.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DUET_API_KEY", help="A client's key, where the gateway has no admin key.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Between two looks.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and end; so it is where there is no terminal.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print once as JSON, and end.")] = False,
) -> None:
    """Show engines, their load and the newest requests, live until Ctrl-C."""
    with calling(url, admin_key or api_key, silent_for=ANSWER_WITHIN) as client:
        run(client, interval=interval, once=once, json=json)


def run(client: httpx.Client, *, interval: float, once: bool, json: bool) -> None:
    """Raises Refused or httpx's errors for the first look; a later one that fails is shown, and tried again."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    first = look(client)
    if json:
        typer.echo(as_json(first))
    elif once or not console.is_terminal:
        console.print(view(first, now=time.time()))
    else:
        live(console, first, lambda: look(client), interval)


def live(console: Any, first: Status, again: Callable[[], Status], interval: float) -> None:
    """Until it is interrupted."""
    import httpx
    from rich.live import Live

    shown, trouble = first, None
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(view(shown, now=time.time(), trouble=trouble), refresh=True)
            time.sleep(interval)
            try:
                shown, trouble = again(), None
            except (Refused, httpx.HTTPError) as e:
                trouble = str(e) or type(e).__name__


def look(client: httpx.Client) -> Status:
    """Raises Refused if the server refuses, or is no Duet gateway."""
    topology = _object(get(client, "/admin/topology", within=ANSWER_WITHIN), "engines")
    requests = _object(get(client, "/admin/requests", within=ANSWER_WITHIN, limit=NEWEST), "requests")
    return Status(topology, requests["requests"])


def as_json(found: Status) -> str:
    """The topology with `states`, and `requests`: as the admin API has them."""
    return jsonlib.dumps({**found.topology, "states": found.states, "requests": found.requests}, indent=2)


def view(found: Status, *, now: float, trouble: str | None = None) -> Group:
    """`now` is Unix seconds; `trouble` is why the last look failed."""
    from rich.console import Group
    from rich.text import Text

    topology = found.topology
    lines = [Text(f"{topology['connector']['name']}, seen by {topology['replica']}")]
    lines += [Text(f"no {leg} engine can be routed to", "red") for leg, can in topology["routable"].items() if not can]
    if trouble is not None:
        lines.append(Text(f"what is below is old: {trouble}", "red"))
    return Group(*lines, _engines(topology["engines"]), _states(found), _newest(found.requests, now))


def _engines(engines: Sequence[Mapping[str, Any]]) -> Any:
    table = _table("engine", "role", "state", "load", "models", "fault")
    for e in sorted(engines, key=lambda e: (e["role"], e["id"])):
        state, style = ("draining", "yellow") if e["draining"] else ("up", "green") if e["up"] else ("down", "red")
        models = ", ".join(e["models"])
        _row(table, e["id"], e["role"], (state, style), str(e["load"]), models, (e["fault"] or "", "red"))
    return table


def _states(found: Status) -> Any:
    from rich.text import Text

    named = ", ".join(f"{n} {state}" for state, n in found.states.items()) or "none yet"
    bound = f"newest {NEWEST} requests" if len(found.requests) >= NEWEST else "requests"
    return Text(f"{bound}: {named}")


def _newest(requests: Sequence[Mapping[str, Any]], now: float) -> Any:
    table = _table("request", "state", "age", "model", "prefill", "decode", "error")
    for r in requests[:SHOWN]:
        style = "cyan" if r["state"] in LIVE else "green" if r["state"] == "finished" else "red"
        age = f"{max(0.0, now - r['created_at']):.0f} s"
        cells = (r["id"], (r["state"], style), age, r["model"], r["prefill"], r["decode"], (_error(r["error"]), "red"))
        _row(table, *cells)
    return table


def _error(error: Any) -> str:
    return str((error or {}).get("message", ""))


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        words = name in ("fault", "error", "models")
        table.add_column(
            name,
            justify="right" if name in ("load", "age") else "left",
            overflow="fold" if words else "ellipsis",
            no_wrap=not words and name != "request",  # an id may be cut, and what may not be wrapped is cut last
            min_width=MIN_WIDTHS.get(name),
        )
    return table


def _row(table: Any, *cells: str | tuple[str, str] | None) -> None:
    from rich.text import Text

    table.add_row(*(Text(*cell) if isinstance(cell, tuple) else Text(cell or "-") for cell in cells))


def _object(reply: httpx.Response, field: str) -> dict[str, Any]:
    expect_ok(reply)
    try:
        found = reply.json()
        if isinstance(found[field], list):
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise Refused(f"{reply.url} has no list of {field}; is this a Duet gateway?")
