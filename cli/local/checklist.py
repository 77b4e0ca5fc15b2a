"""A checklist with progress and times: live on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_MARKS = {
    State.WAITING: Text("·", "dim"),
    State.RUNNING: Text("…", "cyan"),
    State.DONE: Text("✓", "green"),
    State.FAILED: Text("✗", "red"),
}


@dataclass(slots=True)
class Item:
    """One thing to be done. Times are seconds of the checklist's clock."""

    name: str
    state: State = State.WAITING
    note: str = ""
    started: float | None = None
    ended: float | None = None

    def took(self, now: float) -> float:
        """Seconds so far, or in all."""
        if self.started is None:
            return 0.0
        return (now if self.ended is None else self.ended) - self.started


class Checklist:
    """Use as a context manager; items are called by their names."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds."""
        self.items = {name: Item(name) for name in names}
        self._console = console or Console()
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
        self.items[name].started = self._clock()
        self._change(name, State.RUNNING, note)

    def progress(self, name: str, note: str) -> None:
        """How far it has come; nothing is said again that was said last."""
        if note != self.items[name].note:
            self._change(name, State.RUNNING, note)

    def done(self, name: str, note: str = "") -> None:
        self.items[name].ended = self._clock()
        self._change(name, State.DONE, note)

    def failed(self, name: str) -> None:
        """Keeps the note: how far it had come."""
        self.items[name].ended = self._clock()
        self._change(name, State.FAILED, self.items[name].note)

    def _change(self, name: str, state: State, note: str) -> None:
        item = self.items[name]
        item.state, item.note = state, note
        if self._live is None:
            line = f"{state:8}{item.took(self._clock()):6.1f} s  {name}" + (f" ({note})" if note else "")
            self._console.print(Text(line), soft_wrap=True)

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column()
        table.add_column(justify="right")
        table.add_column(overflow="ellipsis", no_wrap=True)
        now = self._clock()
        for item in self.items.values():
            took = "" if item.started is None else f"{item.took(now):.1f} s"
            table.add_row(_MARKS[item.state], Text(item.name), took, Text(item.note, "dim"))
        return table
