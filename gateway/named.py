"""What the settings name: the connector, the engines by their URLs, and where further engines are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from common.clock import Clock
from common.connectors import Connector, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from gateway.discovery import Source, Static
from gateway.discovery.file import ListedInFile
from gateway.discovery.names import MARK, BehindName
from gateway.discovery.registered import Registered
from gateway.discovery.told import check_told
from gateway.settings import Settings
from gateway.store.port import Store


def connector_of(settings: Settings) -> Connector:
    """Raises ConfigurationError for a name that is not known."""
    return connector(settings.connector, lease=settings.kv_lease)


def engines_of(settings: Settings, kv: Connector) -> list[Engine]:
    """The engines that the settings name. Raises ConfigurationError for the first thing that is wrong with them."""
    engines, wrong = named_engines(settings, kv)
    if wrong:
        raise wrong[0]
    return engines


def named_engines(settings: Settings, kv: Connector | None) -> tuple[list[Engine], list[ConfigurationError]]:
    """Every engine whose URL is one, and all that is wrong: with a URL, with what it tells the connector (None looks
    at none of that), with two mentions of one engine, or with a role that has no engine.

    One listed as prefill and as decode has role `both`.
    """
    found: dict[str, Engine] = {}
    wrong: list[ConfigurationError] = []
    for role, urls in ((Role.PREFILL, settings.prefill), (Role.DECODE, settings.decode)):
        if not urls and not settings.discovers:
            wrong.append(ConfigurationError(f"no {role.value} engine: expected --{role.value} URL or DUET_{role.name}"))
        for url in _plain(urls):
            try:
                engine = Engine.at(url, role)
                other = found.get(engine.id)
                found[engine.id] = other or engine
                found[engine.id] = engine = _once(engine, other)
                if kv is not None:
                    check_told(engine, url, role, kv)
            except ConfigurationError as e:
                wrong.append(e)
    return list(found.values()), wrong


def _once(engine: Engine, other: Engine | None) -> Engine:
    """One engine out of two mentions of it. Raises ConfigurationError if they say different things."""
    if other is None:
        return engine
    facts = {**other.facts, **engine.facts}
    if engine.url != other.url or any(facts[name] != value for name, value in other.facts.items()):
        raise ConfigurationError(
            f"engine {engine.id} is named twice, as {other.url} {dict(other.facts)} and as {engine.url} "
            f"{dict(engine.facts)}; expected the same of both"
        )
    return replace(engine, role=engine.role if engine.role is other.role else Role.BOTH, facts=facts)


def _plain(urls: Sequence[str]) -> list[str]:
    """Without repetition, and without names that stand for several engines."""
    return [url for url in dict.fromkeys(urls) if not url.startswith(MARK)]


def sources_of(
    settings: Settings, engines: Sequence[Engine], store: Store, kv: Connector, clock: Clock
) -> list[Source]:
    """Who knows of engines: the settings that name `engines` first. Raises ConfigurationError."""
    found: list[Source] = [Static(engines)]
    if settings.registry:
        found.append(Registered(store, kv, clock))
    return [*found, *other_sources(settings, kv)]


def other_sources(settings: Settings, kv: Connector) -> list[Source]:
    """The file and the DNS names. Raises ConfigurationError for a file that cannot be used now or a name that is
    none."""
    found: list[Source] = []
    if settings.engines_file is not None:
        found.append(ListedInFile(Path(settings.engines_file), kv))
    named = (
        (Role.PREFILL, settings.prefill),
        (Role.DECODE, settings.decode),
        (Role.TALKER, settings.talkers),
        (Role.CODE2WAV, settings.code2wavs),
    )
    for role, urls in named:
        found += [BehindName(url, role, kv) for url in dict.fromkeys(urls) if url.startswith(MARK)]
    return found


def speech_engines_of(settings: Settings) -> list[Engine]:
    """The Talkers and Code2Wavs that the settings name, maybe none. Raises ConfigurationError for a URL that is none or
    says anything, for one sort without the other, and for packages that speech needs and that are not installed."""
    named = {Role.TALKER: settings.talkers, Role.CODE2WAV: settings.code2wavs}
    if not any(named.values()):
        return []
    for role, urls in named.items():
        if not urls and not settings.discovers:
            raise ConfigurationError(f"no {role.value} engine, and one of the other sort: expected DUET_{role.name}S")
    if missing := [name for name in ("av", "zmq") if find_spec(name) is None]:
        raise ConfigurationError(f"speech needs the packages {', '.join(missing)}: install duet[audio]")
    engines = [Engine.at(url, role) for role, urls in named.items() for url in _plain(urls)]
    for engine in engines:
        if engine.facts:
            raise ConfigurationError(
                f"{engine.role} engine URL {engine.url} says {dict(engine.facts)}: expected nothing"
            )
    return engines
