"""A checklist with progress and times: live on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

_MARKS = {"waiting": "[dim]·[/]", "running": "[cyan]…[/]", "done": "[green]✓[/]", "failed": "[red]✗[/]"}


@dataclass(slots=True)
class Item:
    name: str
    state: str = "waiting"
    note: str = ""
    started: float | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float | None:
        if self.started is None:
            return None
        return (self.ended if self.ended is not None else now) - self.started


class Checklist:
    """Use as a context manager. `clock` gives seconds."""

    def __init__(
        self, names: list[str], *, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.items = {name: Item(name) for name in names}
        self._console = Console(file=out, highlight=False)
        self._clock = clock
        self._live = Live(self, console=self._console, refresh_per_second=4) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def start(self, name: str, note: str = "") -> None:
        item = self.items[name]
        item.state, item.started, item.note = "running", self._clock(), note
        self._say(item)

    def progress(self, name: str, note: str) -> None:
        item = self.items[name]
        if item.note != note:
            item.note = note
            self._say(item)

    def done(self, name: str, note: str = "") -> None:
        self._end(name, "done", note)

    def failed(self, name: str) -> None:
        self._end(name, "failed", self.items[name].note)

    def _end(self, name: str, state: str, note: str) -> None:
        item = self.items[name]
        item.state, item.note, item.ended = state, note, self._clock()
        if item.started is None:
            item.started = item.ended
        self._say(item)

    def _say(self, item: Item) -> None:
        if self._live is None:
            seconds = item.seconds(self._clock()) or 0.0
            note = f" ({item.note})" if item.note else ""
            self._console.print(f"{item.state:8}{seconds:6.1f} s  {item.name}{note}", markup=False, soft_wrap=True)

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        now = self._clock()
        for item in self.items.values():
            seconds = item.seconds(now)
            shown = "" if seconds is None else f"{seconds:.1f} s"
            table.add_row(_MARKS[item.state], item.name, shown, f"[dim]{item.note}[/]")
        return table
