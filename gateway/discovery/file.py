"""The engines that a file lists, by role. It is read again when it changes.

    prefill:
      - http://10.0.0.1:8100
    decode:
      - http://10.0.0.2:8200
    talkers: []
    code2wavs: []

JSON is YAML, too. A file with one fault is refused as a whole: the engines of the one before it stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from gateway.discovery.port import Found, SourceAway
from gateway.discovery.told import engine_of

LISTS = {"prefill": Role.PREFILL, "decode": Role.DECODE, "talkers": Role.TALKER, "code2wavs": Role.CODE2WAV}
MOST = 2**20
"""Bytes of such a file."""

Stamp = tuple[int, int, int]


class ListedInFile:
    name = "file"
    complaint: str | None = None

    def __init__(self, path: Path, kv: Connector) -> None:
        """Raises ConfigurationError for a file that cannot be used now."""
        self._path = path
        self._kv = kv
        self._stamp, self.known = self._read()

    async def look(self) -> Sequence[Found]:
        try:
            self._stamp, self.known = await asyncio.to_thread(self._read_if_changed)
        except ConfigurationError as e:
            raise SourceAway(e.message) from None
        return self.known

    def _read_if_changed(self) -> tuple[Stamp, list[Found]]:
        """One stat where nothing changed: also where a mounted volume puts another file behind a link."""
        return (self._stamp, self.known) if _stamp(self._path) == self._stamp else self._read()

    def _read(self) -> tuple[Stamp, list[Found]]:
        stamp = _stamp(self._path)  # before the text: what is written meanwhile is seen at the next look
        try:
            with self._path.open("rb") as file:
                raw = file.read(MOST + 1)
            if len(raw) > MOST:
                raise ConfigurationError(f"engines file {self._path}: more than {MOST} bytes")
            said = yaml.safe_load(raw)
        except yaml.MarkedYAMLError as e:
            line = f"line {e.problem_mark.line + 1}: " if e.problem_mark else ""
            raise ConfigurationError(f"engines file {self._path} cannot be read: {line}{e.problem}") from None
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as e:
            words = " ".join(str(e).split())
            raise ConfigurationError(f"engines file {self._path} cannot be read: {words}") from None
        return stamp, [Found(engine) for engine in self._engines(said)]

    def _engines(self, said: object) -> list[Engine]:
        if not isinstance(said, dict) or set(said) - set(LISTS):
            raise ConfigurationError(
                f"engines file {self._path}: expected a mapping with {', '.join(LISTS)}; got {said!r:.120}"
            )
        found: dict[str, Engine] = {}
        for name, role in LISTS.items():
            urls = said.get(name) or []
            if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
                raise ConfigurationError(
                    f"engines file {self._path}: {name} is {urls!r:.120}; expected a list of base URLs"
                )
            for url in urls:
                engine = engine_of(url, role, self._kv)
                found[engine.id] = self._once(engine, found.get(engine.id))
        return list(found.values())

    def _once(self, engine: Engine, other: Engine | None) -> Engine:
        """One listed as prefill and as decode takes both legs."""
        if other is None or other == engine:
            return engine
        if other.url != engine.url or not (other.role.thinks and engine.role.thinks):
            raise ConfigurationError(
                f"engines file {self._path}: engine {engine.id} is listed as {other.role.value} {other.url} and as "
                f"{engine.role.value} {engine.url}; expected the same"
            )
        return replace(engine, role=Role.BOTH, facts={**other.facts, **engine.facts})


def _stamp(path: Path) -> Stamp:
    """Raises ConfigurationError for a file that is not there."""
    try:
        stat = path.stat()
    except OSError as e:
        raise ConfigurationError(f"engines file {path} cannot be read: {e.strerror or e}") from None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
