"""An engine out of what somebody says of it."""

from __future__ import annotations

from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError


def engine_of(url: str, role: Role, kv: Connector) -> Engine:
    """Raises ConfigurationError for a URL that is none, or that tells the connector what it cannot use."""
    engine = Engine.at(url, role)
    check_told(engine, url, role, kv)
    return engine


def check_told(engine: Engine, url: str, role: Role, kv: Connector) -> None:
    """Raises ConfigurationError for a URL that says what the connector does not know, or cannot use."""
    options = kv.options if role.thinks else {}
    unknown = set(engine.facts) - set(options)
    if unknown:
        known = ", ".join(options) or "nothing"
        whose = kv.name if role.thinks else f"a {role.value} engine"
        raise ConfigurationError(f"{role.value} engine URL {url!r} says {unknown.pop()!r}; {whose} can be told {known}")
    if role.serves(Role.PREFILL):
        try:
            kv.lookup(engine)  # finds a wrong option before anything is asked
        except ValueError:
            raise ConfigurationError(
                f"{role.value} engine URL {url!r:.300}: {kv.name} cannot use what it says beside host and port"
            ) from None
