"""KV connectors: one file each, behind the contract in `base.py`. No connector is named outside its own file.

| connector | order | prefill returns | unfetched KV lives |
| --- | --- | --- | --- |
| `nixl.py` NixlConnector | prefill, then decode | where its blocks are | `kv_lease_duration`, 30 s |
| `nixl_push.py` NixlPushConnector | prefill, then decode | the same | the same |
| `mooncake.py` MooncakeConnector | both at once | nothing | `VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT`, 480 s |
| `example.py` ExampleConnector | prefill, then decode | nothing | on disk |
| `multi.py` Multi(A, B, …) | as the one that carries | as that one | as that one |
"""

from __future__ import annotations

import re

from common.connectors.base import Connector
from common.connectors.example import ExampleConnector
from common.connectors.mooncake import MooncakeConnector
from common.connectors.multi import MultiConnector
from common.connectors.nixl import NixlConnector
from common.connectors.nixl_push import NixlPushConnector
from common.errors import ConfigurationError

CONNECTORS: tuple[type[Connector], ...] = (NixlConnector, NixlPushConnector, MooncakeConnector, ExampleConnector)
"""A new connector is one file and one entry here."""
DEFAULT = NixlConnector.name
"""The connector where a setting names none."""

_MULTI = re.compile(r"multi(?:connector)?\s*\((.*)\)", re.IGNORECASE)


def connector(name: str, *, lease: float | None = None) -> Connector:
    """The connector of that name or alias, in any case; `Multi(A, B)` is one engine's several.

    Raises ConfigurationError, listing what there is.
    """
    several = _MULTI.fullmatch(name.strip())
    if several is not None:
        parts = [part for part in several[1].split(",") if part.strip()]
        return MultiConnector([connector(part, lease=lease) for part in parts], lease=lease)
    for kind in CONNECTORS:
        if name.strip().lower() in {n.lower() for n in (kind.name, *kind.aliases)}:
            return kind(lease=lease)
    known = ", ".join(kind.name for kind in CONNECTORS)
    raise ConfigurationError(f"connector {name!r} is not known; expected one of {known}, or Multi(A, B) of those")


__all__ = ["CONNECTORS", "DEFAULT", "Connector", "connector"]
