"""What an engine says of itself in the registry, and under which keys. Two plain Redis commands are enough to say it.

| key | type | holds | lives |
| --- | --- | --- | --- |
| `registered:<id>` | string | an announcement as JSON; `id` is `host:port` | `TTL` after each heartbeat |
| `registered` | sorted set | id -> when it was last heard of, epoch seconds | a day after the last heartbeat of any |

| field of an announcement | |
| --- | --- |
| `url`, `role` | base URL, as `--prefill` and the like take it, and what the engine is for |
| `life` | another one after each start; where it changes, what the engine held is gone. Empty where nobody knows |
| `since` | when this life was first announced, epoch seconds: of two that do not fit each other the older stays |
| `identity` | what is declared of it, in the names of `/duet/identity`; may be empty |
| `leaving` | true: it is going, and gets nothing new from now on |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.strict import json_object

MOST = 2**16
"""Characters of an announcement."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The keys of a registry; `prefix` is what all keys of a deployment start with."""

    prefix: str = "duet:"

    @property
    def index(self) -> str:
        return f"{self.prefix}registered"

    def entry(self, engine: str) -> str:
        return f"{self.prefix}registered:{engine}"


@dataclass(frozen=True, slots=True)
class Announcement:
    url: str
    role: Role
    life: str
    since: float
    identity: Mapping[str, Any] = field(default_factory=dict)
    leaving: bool = False

    @property
    def engine(self) -> Engine:
        """Raises ConfigurationError for a URL that is none."""
        return Engine.at(self.url, self.role)

    def text(self) -> str:
        said = {
            "url": self.url,
            "role": self.role.value,
            "life": self.life,
            "since": self.since,
            "identity": dict(self.identity),
            "leaving": self.leaving,
        }
        return json.dumps(said)

    @classmethod
    def of(cls, text: str) -> Announcement:
        """Raises ConfigurationError, naming the field, for what is no announcement."""
        if len(text) > MOST:
            raise ConfigurationError(f"announcement of {len(text)} characters: expected {MOST} at most")
        try:
            said = json_object(text)
        except ValueError as e:
            raise ConfigurationError(f"announcement {text[:80]!r}: {e}") from None
        role = said.get("role")
        if not isinstance(role, str) or role not in set(Role):
            raise ConfigurationError(f"role is {role!r:.80}: expected one of {', '.join(Role)}")
        since = _seconds(said.get("since", 0.0))
        for name, value, kind in (
            ("url", said.get("url"), str),
            ("life", said.get("life", ""), str),
            ("identity", said.get("identity", {}), dict),
            ("leaving", said.get("leaving", False), bool),
        ):
            if not isinstance(value, kind):
                raise ConfigurationError(f"{name} is {value!r:.80}: expected a {kind.__name__}")
        return cls(
            said["url"],
            Role(role),
            said.get("life", ""),
            since,
            said.get("identity", {}),
            said.get("leaving", False),
        )


def _seconds(value: object) -> float:
    """Raises ConfigurationError for what is no time."""
    try:
        since = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        since = math.inf
    if not math.isfinite(since):
        raise ConfigurationError(f"since is {value!r:.80}: expected a number of seconds")
    return since
