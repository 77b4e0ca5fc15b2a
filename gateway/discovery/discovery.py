"""Asks all sources again and again, each at its own pace, and merges what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from common.tasks import Background
from gateway.discovery.port import Found, Source, SourceAway

log = logging.getLogger(__name__)

AT_START_WITHIN = 5.0
"""Seconds that a start waits for the first word of each source."""


@dataclass(slots=True)
class Asked:
    """What one source said last, and why it says nothing now; None while it does."""

    source: Source
    found: Mapping[str, Found]
    fault: str | None = "not asked yet"


class Discovery:
    """An engine that several sources name is the one of the first of them."""

    def __init__(self, sources: Sequence[Source], *, interval: float) -> None:
        """`interval` is seconds between two looks of one source."""
        self.asked = [Asked(source, _by_id(source.known)) for source in sources]
        self._interval = interval
        self._watches = [Background(partial(self._run, asked)) for asked in self.asked]

    async def start(self) -> None:
        """Each source is asked once, so that a gateway begins with all engines; then in the background."""
        await asyncio.gather(*(self._first(asked) for asked in self.asked))
        for watch in self._watches:
            watch.start()

    async def stop(self) -> None:
        await asyncio.gather(*(watch.stop() for watch in self._watches))

    def engines(self) -> Mapping[str, tuple[str, Found]]:
        """By `Engine.id`: the source that names it, and what that says of it."""
        merged: dict[str, tuple[str, Found]] = {}
        for asked in self.asked:
            for id_, found in asked.found.items():
                merged.setdefault(id_, (asked.source.name, found))
        return merged

    async def look(self) -> None:
        """Asks all sources now."""
        await asyncio.gather(*map(self._look, self.asked))

    async def _first(self, asked: Asked) -> None:
        try:
            async with asyncio.timeout(AT_START_WITHIN):
                await self._look(asked)
        except TimeoutError:
            asked.fault = f"{asked.source.name} did not say within {AT_START_WITHIN:g} s which engines there are"
            log.warning("%s", asked.fault)

    async def _look(self, asked: Asked) -> None:
        try:
            found = await asked.source.look()
            asked.found, asked.fault = _by_id(found), asked.source.complaint
        except SourceAway as e:
            self._away(asked, e.message)
        except Exception as e:  # one source that fails as nobody foresaw keeps nobody from asking it and the others
            words = f"{asked.source.name} cannot be asked, by a fault of the gateway: {type(e).__name__}: {e!s:.200}"
            self._away(asked, words, e)

    def _away(self, asked: Asked, fault: str, error: Exception | None = None) -> None:
        if asked.fault != fault:
            log.warning("%s; the engines that were named last stand", fault, exc_info=error)
        asked.fault = fault

    async def _run(self, asked: Asked) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._look(asked)


def _by_id(found: Sequence[Found]) -> dict[str, Found]:
    return {one.engine.id: one for one in found}
