"""The engines that settings name: always the same."""

from __future__ import annotations

from collections.abc import Sequence

from common.engine import Engine
from gateway.discovery.port import Found

NAME = "settings"


class Static:
    name = NAME
    complaint: str | None = None

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.known = [Found(engine) for engine in engines]

    async def look(self) -> Sequence[Found]:
        return self.known
