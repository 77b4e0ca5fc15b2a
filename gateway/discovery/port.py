"""What a source of engines is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.engine import Engine
from common.errors import DuetError


class SourceAway(DuetError):
    """A source cannot say for now which engines there are; what it said last stands."""

    code = "source_away"


@dataclass(frozen=True, slots=True)
class Found:
    """An engine as a source names it.

    `life` changes when it was started anew; None where the source cannot tell. `identity` is what is declared of it, in
    the names of `/duet/identity`.
    """

    engine: Engine
    life: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    @property
    def name(self) -> str:
        """Shown to operators."""
        ...

    @property
    def known(self) -> Sequence[Found]:
        """The engines that it knows of without being asked."""
        ...

    @property
    def complaint(self) -> str | None:
        """What of what it read last cannot be used, where the rest can; None if nothing."""
        ...

    async def look(self) -> Sequence[Found]:
        """The engines that there are now, the one that was there first before the others. Raises SourceAway."""
        ...
