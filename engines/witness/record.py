"""What the witness was told and what it said, one JSON object a line.

| event | when | fields |
| --- | --- | --- |
| `row` | a hook is called for a row | `hook`, `request`, `prompt_len`, `computed`, `prefill`, `span`, `step` |
| `mtp` | a row gets a frame from `talker_mtp` | `request`, `step`, `codes` |

`step` is the model's own count of decode rows before this one. Nothing is written unless a file is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Row:
    """A row as the runner told it. Lengths are tokens; the three keys of the contract are `prompt_len`, `computed`
    and `prefill`."""

    hook: Literal["scalar", "batched"]
    request: str
    prompt_len: int
    computed: int
    prefill: bool
    span: int
    step: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """As the contract's table has it: prompt length, computed before the step, span."""
        return self.prompt_len, self.computed, self.span


@dataclass(frozen=True, slots=True)
class Frame:
    """16 codes that the MTP gave to a request at its `step`."""

    request: str
    step: int
    codes: tuple[int, ...]


class Recorder:
    """Adds events to the end of a file, each at once: an engine that dies has told all it knew."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def on(self) -> bool:
        return self._path is not None

    def add(self, event: Row | Frame) -> None:
        if self._path is not None:
            kind = "row" if isinstance(event, Row) else "mtp"
            with self._path.open("a") as file:
                file.write(json.dumps({"event": kind, **asdict(event)}) + "\n")


def read(path: Path) -> list[Row | Frame]:
    """All events of a record, in their order."""
    return [_event(json.loads(line)) for line in path.read_text().splitlines()]


def _event(told: Mapping[str, Any]) -> Row | Frame:
    fields = {name: value for name, value in told.items() if name != "event"}
    if told["event"] == "row":
        return Row(**fields)
    return Frame(fields["request"], fields["step"], tuple(fields["codes"]))
