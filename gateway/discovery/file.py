"""The engines that a file lists, by role. It is read again when it changes.

    prefill:
      - http://10.0.0.1:8100
    decode:
      - http://10.0.0.2:8200
    talkers: []
    code2wavs: []

JSON is YAML, too, and a deploy file's reader reads it. A file with one fault is refused as a whole: the engines of the
one before it stand. So they do while a file is being written: the half of one is often valid YAML, with other engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.topology.document import MAX_BYTES, Document, parse
from common.topology.fault import Place, TopologyInvalid
from common.topology.names import nearest
from gateway.discovery.port import Found, SourceAway
from gateway.discovery.told import engine_of

LISTS = {"prefill": Role.PREFILL, "decode": Role.DECODE, "talkers": Role.TALKER, "code2wavs": Role.CODE2WAV}
HOLDS = ", ".join(LISTS)
MOST_SHOWN = 200
"""Characters of a place in a message."""

Stamp = tuple[int, int, int]
"""Inode, time of the last change in ns, size in bytes."""


class ListedInFile:
    name = "file"
    complaint: str | None = None

    def __init__(self, path: Path, kv: Connector) -> None:
        """Raises ConfigurationError for a file that cannot be used now."""
        self._path = path
        self._kv = kv
        self._seen: Stamp | None = None
        """Of the changed file that the look before this one saw."""
        self._stamp = _stamp(path)  # before the text: what is written meanwhile is a change
        self.known = self._read()

    async def look(self) -> Sequence[Found]:
        try:
            await asyncio.to_thread(self._read_if_changed)
        except ConfigurationError as e:
            raise SourceAway(e.message) from None
        return self.known

    def _read_if_changed(self) -> None:
        """One stat where nothing changed: also where a mounted volume puts another file behind a link. A changed file
        is taken once it was the same in two looks and after it was read."""
        stamp, before = _stamp(self._path), self._seen
        self._seen = stamp
        if stamp == self._stamp or stamp != before:
            return
        known = self._read()
        if _stamp(self._path) == stamp:
            self._stamp, self.known = stamp, known

    def _read(self) -> list[Found]:
        try:
            with self._path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as e:
            raise ConfigurationError(f"engines file {self._path} cannot be read: {e.strerror or e}") from None
        try:
            document = parse(raw, str(self._path), HOLDS)
        except TopologyInvalid as e:
            fault = e.faults[0]
            raise self._refusal(fault.place, f"{fault.what}; {fault.do}" if fault.do else fault.what) from None
        return [Found(engine) for engine in self._engines(document)]

    def _engines(self, document: Document) -> list[Engine]:
        for key in document.values:
            if key not in LISTS:
                close = nearest(key, LISTS)
                meant = f"; did you mean {close}?" if close else ""
                raise self._refusal(document.place((key,)), f"is not known here; expected some of {HOLDS}{meant}")
        found: dict[str, Engine] = {}
        for name, role in LISTS.items():
            for place, url in self._urls(document, name):
                try:
                    engine = engine_of(url, role, self._kv)
                    found[engine.id] = _once(engine, found.get(engine.id))
                except ConfigurationError as e:
                    raise self._refusal(place, e.message) from None
        return list(found.values())

    def _urls(self, document: Document, name: str) -> Iterator[tuple[Place, str]]:
        urls = document.values.get(name)
        if not isinstance(urls, list | None):
            raise self._refusal(document.place((name,)), f"is {_kind(urls)}; expected a list of base URLs")
        for i, url in enumerate(urls or ()):
            place = document.place((name, i))
            if not isinstance(url, str):
                raise self._refusal(place, f"is {_kind(url)}; expected a base URL")
            yield place, url

    def _refusal(self, place: Place, what: str) -> ConfigurationError:
        """Names keys and places, and no value but a URL: another file than was meant may hold secrets."""
        line = f", line {place.line}" if place.line is not None else ""
        path = f"{place}: "[:MOST_SHOWN] if place.path else ""
        return ConfigurationError(f"engines file {self._path}{line}: {path}{what}")


def _once(engine: Engine, other: Engine | None) -> Engine:
    """One listed as prefill and as decode takes both legs. Raises ConfigurationError for one listed as two things."""
    if other is None or other == engine:
        return engine
    if other.url != engine.url or not (other.role.thinks and engine.role.thinks):
        raise ConfigurationError(
            f"engine {engine.id} is listed as {other.role.value} {other.url} and as {engine.role.value} {engine.url}; "
            "expected the same"
        )
    return replace(engine, role=Role.BOTH, facts={**other.facts, **engine.facts})


def _kind(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else f"a {type(value).__name__}" if value is not None else "empty"


def _stamp(path: Path) -> Stamp:
    """Raises ConfigurationError for a file that is not there."""
    try:
        stat = path.stat()
    except OSError as e:
        raise ConfigurationError(f"engines file {path} cannot be read: {e.strerror or e}") from None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
