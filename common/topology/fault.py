"""What is wrong with a topology: where, what, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import ConfigurationError

_PLAIN = re.compile(r"[\w-]+")
Path = tuple[str | int, ...]
"""Keys and indices from the top of a file: `("stages", 0, "devices")`."""


def written(path: Path) -> str:
    """`stages[0].devices`; empty for the file as a whole. A key that is no plain name is quoted."""
    text = ""
    for step in path:
        plain = isinstance(step, str) and _PLAIN.fullmatch(step)
        text += f".{step}" if plain and text else str(step) if plain else f"[{step!r}]"
    return text


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file. `line` counts from 1; it is None for what stands in none."""

    path: Path = ()
    line: int | None = None

    def __str__(self) -> str:
        return written(self.path)


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why a topology is refused.

    `rule` is a name that programs may rely on, `what` says what was seen and what was expected, `do` is the remedy.
    """

    rule: str
    what: str
    do: str = ""
    place: Place = NOWHERE
    file: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.place.line}" if self.place.line is not None else self.file
        parts = [part for part in (where, str(self.place)) if part]
        return ": ".join([*parts, f"{self.what}; {self.do}" if self.do else self.what])


class TopologyInvalid(ConfigurationError):
    """A topology that is refused; a line of the message for each of its `faults`."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class FileUnreadable(TopologyInvalid):
    """There is no file to judge."""
