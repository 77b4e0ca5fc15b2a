"""The engines that announce themselves in Redis (`common/registry`).

One that says that it leaves is gone at once. One whose entry merely ends is believed gone a little later: a Redis that
was started anew is empty until all have announced themselves again, and after it was away that takes a while longer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from common.clock import Clock
from common.connectors import Connector
from common.errors import ConfigurationError, StoreUnavailable
from common.registry import EVERY, TTL, Announcement
from gateway.discovery.port import Found, SourceAway
from gateway.discovery.told import engine_of
from gateway.store.port import Store, Unreadable

log = logging.getLogger(__name__)

NAME = "registry"
MISSED_FOR = 3 * EVERY
"""Seconds for which an entry must be missing before its engine is gone."""
MISSED_AT = 3
"""Looks at which it must have been, too: a gateway that stood still itself for so long has missed nothing."""
AFTER_LOSS = 2 * TTL
"""The same while Redis has been back for less than this."""


@dataclass(slots=True)
class _Missing:
    """`since` when, by the monotonic clock, and at how many looks."""

    since: float
    looks: int = 0


class Registered:
    name = NAME
    known: Sequence[Found] = ()

    def __init__(self, store: Store, kv: Connector, clock: Clock) -> None:
        self._store = store
        self._kv = kv
        self._clock = clock
        self._last: dict[str, tuple[float, Found]] = {}
        """Engine -> since when it is there, epoch seconds, and what it says."""
        self._missing: dict[str, _Missing] = {}
        self._lost_at: float | None = None
        self._faults: dict[str, str] = {}
        """Engine -> what is wrong with its announcement."""

    @property
    def complaint(self) -> str | None:
        return next((_refusal(id_, fault) for id_, fault in sorted(self._faults.items())), None)

    async def look(self) -> Sequence[Found]:
        now = self._clock.monotonic()
        try:
            listed = await self._store.announced()
        except StoreUnavailable as e:
            self._lost_at = now
            self._missing.clear()
            raise SourceAway(e.message) from None
        self._faults = {id_: fault for id_, fault in self._faults.items() if listed.get(id_)}
        said = {id_: one for id_, text in listed.items() if text and (one := self._read(id_, text)) is not None}
        there = {id_: self._found(id_, one) for id_, one in said.items() if not one.leaving}
        for id_ in set(self._last) - set(said):
            missing = self._missing.setdefault(id_, _Missing(now))
            missing.looks += 1
            if missing.looks < MISSED_AT or now - missing.since < self._patience(now):
                there[id_] = self._last[id_]
        self._missing = {id_: one for id_, one in self._missing.items() if id_ in there and id_ not in said}
        self._last = {id_: one for id_, one in there.items() if one is not None}
        return [found for _, found in sorted(self._last.values(), key=lambda one: (one[0], one[1].engine.id))]

    def _patience(self, now: float) -> float:
        return AFTER_LOSS if self._lost_at is not None and now - self._lost_at < AFTER_LOSS else MISSED_FOR

    def _read(self, id_: str, text: str | Unreadable) -> Announcement | None:
        if isinstance(text, Unreadable):
            self._complain(id_, text.why)
            return None
        try:
            return Announcement.of(text)
        except ConfigurationError as e:
            self._complain(id_, e.message)
            return None

    def _found(self, id_: str, said: Announcement) -> tuple[float, Found] | None:
        try:
            engine = engine_of(said.url, said.role, self._kv)
            if engine.id != id_:
                raise ConfigurationError(f"url is {said.url!r}: expected one of {id_}, under which it stands")
        except ConfigurationError as e:
            self._complain(id_, e.message)
            return None
        except Exception as e:  # one that is odd as nobody foresaw hides no other
            self._complain(id_, f"by a fault of the gateway: {type(e).__name__}: {e!s:.200}")
            return None
        self._faults.pop(id_, None)
        return said.since, Found(engine, said.life or None, said.identity)

    def _complain(self, id_: str, fault: str) -> None:
        if self._faults.get(id_) != fault:
            log.warning("%s", _refusal(id_, fault))
        self._faults[id_] = fault


def _refusal(id_: str, fault: str) -> str:
    return f"the announcement of engine {id_} is refused: {fault}"
