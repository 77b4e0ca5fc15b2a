"""KV connectors: one file each, behind the contract in `base.py`. No connector is named outside its own file.

| connector | order | prefill returns | unfetched KV lives |
| --- | --- | --- | --- |
| `nixl.py` NixlConnector | prefill, then decode | where its blocks are | `kv_lease_duration`, 30 s |
"""

from __future__ import annotations

from common.connectors.base import Connector
from common.connectors.nixl import NixlConnector
from common.errors import ConfigurationError

CONNECTORS: tuple[type[Connector], ...] = (NixlConnector,)
"""A new connector is one file and one entry here."""
DEFAULT = NixlConnector.name
"""The connector where a setting names none."""


def connector(name: str, *, lease: float | None = None) -> Connector:
    """The connector of that name or alias, in any case. Raises ConfigurationError, listing what there is."""
    for kind in CONNECTORS:
        if name.lower() in {n.lower() for n in (kind.name, *kind.aliases)}:
            return kind(lease=lease)
    known = ", ".join(kind.name for kind in CONNECTORS)
    raise ConfigurationError(f"connector {name!r} is not known; expected one of {known}")


__all__ = ["CONNECTORS", "DEFAULT", "Connector", "connector"]
