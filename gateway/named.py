"""What the settings name: the connector, and the engines by their URLs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from common.connectors import Connector, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from gateway.settings import Settings


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
        if not urls:
            wrong.append(ConfigurationError(f"no {role.value} engine: expected --{role.value} URL or DUET_{role.name}"))
        for url in dict.fromkeys(urls):
            try:
                engine = Engine.at(url, role)
                other = found.get(engine.id)
                found[engine.id] = other or engine
                found[engine.id] = engine = _once(engine, other)
                if kv is not None:
                    _check_told(engine, url, role, kv)
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


def _check_told(engine: Engine, url: str, role: Role, kv: Connector) -> None:
    """Raises ConfigurationError for a URL that says what the connector does not know, or cannot use."""
    unknown = set(engine.facts) - set(kv.options)
    if unknown:
        known = ", ".join(kv.options) or "nothing"
        raise ConfigurationError(
            f"{role.value} engine URL {url!r} says {unknown.pop()!r}; {kv.name} can be told {known}"
        )
    if role is Role.PREFILL:
        kv.lookup(engine)  # finds a wrong option before anything is started


def speech_engines_of(settings: Settings) -> list[Engine]:
    """The Talkers and Code2Wavs that the settings name, maybe none. Raises ConfigurationError for a URL that is none or
    says anything, for one sort without the other, and for packages that speech needs and that are not installed."""
    named = {Role.TALKER: settings.talkers, Role.CODE2WAV: settings.code2wavs}
    if not any(named.values()):
        return []
    for role, urls in named.items():
        if not urls:
            raise ConfigurationError(f"no {role.value} engine, and one of the other sort: expected DUET_{role.name}S")
    if missing := [name for name in ("av", "zmq") if find_spec(name) is None]:
        raise ConfigurationError(f"speech needs the packages {', '.join(missing)}: install duet[audio]")
    engines = [Engine.at(url, role) for role, urls in named.items() for url in dict.fromkeys(urls)]
    for engine in engines:
        if engine.facts:
            raise ConfigurationError(
                f"{engine.role} engine URL {engine.url} says {dict(engine.facts)}: expected nothing"
            )
    return engines
