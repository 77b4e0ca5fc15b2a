"""What an engine is to everybody else: a role, an address, a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, parse_qsl, urlsplit

from common.errors import ConfigurationError


class Role(StrEnum):
    """What an engine is for. `both` takes either leg of a Thinker, but never both of one request over a connector."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"
    TALKER = "talker"
    CODE2WAV = "code2wav"

    @property
    def thinks(self) -> bool:
        """Whether it takes a leg of a Thinker: whether it has text to give."""
        return self not in (Role.TALKER, Role.CODE2WAV)

    def serves(self, leg: Role) -> bool:
        return self is leg or (self is Role.BOTH and leg.thinks)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's address and role.

    `id` is `host:port` as in the URL (`[::1]:8100` for IPv6), unique in a topology. `facts` is what its URL's query
    says of it and what a connector's lookup learnt, as strings (Mooncake's engine id, say). `channel` is where a Talker
    pulls what it computes, `ipc:///path` or `tcp://host:port`; None where it tells none. `kv_engine` is the name under
    which its KV connector is known to other engines, by its own word; None where it tells none.
    """

    id: str
    url: str
    role: Role
    facts: Mapping[str, str] = field(default_factory=dict)
    channel: str | None = None
    kv_engine: str | None = None

    @classmethod
    def at(cls, url: str, role: Role) -> Engine:
        """An engine from its base URL. Raises ConfigurationError unless it is `http(s)://host[:port][/path][?name=value]`.

        The query holds facts for the connector; which names it may have is the connector's to say (`options`).
        """
        try:
            parts = _parted(url)
            port = parts.port
            said = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            facts = dict(said)
            if len(facts) < len(said):
                raise ValueError("its query says one thing twice")
            if port == 0:
                raise ValueError("port 0 is none")
            if parts.username is not None or parts.password is not None:
                raise ValueError("a user or password in it would not be sent (an engine's key is a setting of its own)")
        except ValueError as e:
            shown = _shown(url)
            raise ConfigurationError(f"{role} engine URL {shown!r:.300}: {e}; expected http://host:port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
            raise ConfigurationError(f"{role} engine URL {_shown(url)!r:.300}: expected http://host:port")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        port = port or (443 if parts.scheme == "https" else 80)
        base = f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
        return cls(id=f"{host}:{port}{parts.path.rstrip('/')}", url=base, role=role, facts=facts)


def _parted(url: str) -> SplitResult:
    """Raises ValueError for what is no URL, or has a host that no resolver takes. The library's own words stay out of
    the message: they repeat what may be a part of a password."""
    try:
        url.encode()
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("it cannot be read, or its port is no number from 1 to 65535") from None
    try:
        (parts.hostname or "").encode("idna")
    except UnicodeError:
        raise ValueError("a part of its host's name is empty, too long, or no name") from None
    return parts


def _shown(url: str) -> str:
    """Without a user and password."""
    return url if "@" not in url else "…@" + url.rpartition("@")[2]
