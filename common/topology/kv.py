"""The KV connector of a split: by the name that the file uses, and by the configuration that its engines have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.connectors import CONNECTORS, Connector, connector
from common.errors import ConfigurationError
from common.topology.fault import Place, TopologyInvalid
from common.topology.names import nearest
from common.topology.topology import Topology

KV = "kv_transfer_config"
EXTRA = "kv_connector_extra_config"
_PORT = 61917
"""Any port: it is looked for in what a connector makes of it."""


def named(config: Mapping[str, Any]) -> str | None:
    """How `common.connectors` calls what a `kv_transfer_config` names; several in one as `Multi(A, B)`."""
    parts = (config.get(EXTRA) or {}).get("connectors")
    if isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts):
        return f"Multi({', '.join(str(part.get('kv_connector')) for part in parts)})"
    name = config.get("kv_connector")
    return None if name is None else str(name)


def known(topology: Topology, name: str, place: Place) -> Connector:
    """Raises TopologyInvalid for a connector that Duet cannot route for."""
    lease = topology.split.lease if topology.split is not None else None
    try:
        return connector(name, lease=lease)
    except ConfigurationError as e:
        near = nearest(name, {n for kind in CONNECTORS for n in (kind.name, *kind.aliases)})
        do = f"did you mean {near}?" if near else "docs/connectors says how to add one"
        raise TopologyInvalid([topology.fault("kv.connector", place, e.message, do)]) from None


def connector_of(topology: Topology) -> Connector | None:
    """The one that prefill is configured with, with the split's lease; None without a split or a configuration.

    Raises TopologyInvalid for one that Duet does not know.
    """
    if topology.pair is None:
        return None
    settings = topology.stage(topology.pair.prefill).settings
    name = named(settings.get(KV, {}))
    return None if name is None else known(topology, name, settings.where(KV))


def laid_over(made: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A connector's configuration with a file's over it, and their extra configurations in one."""
    extra = {**(made.get(EXTRA) or {}), **(own.get(EXTRA) or {})}
    return {**made, **own, **({EXTRA: extra} if EXTRA in made or EXTRA in own else {})}


def port_variables(kv: Connector) -> list[str]:
    """Environment variables that hold the connector's own port."""
    made = kv.engine_env(host="127.0.0.1", side_port=_PORT)
    return [name for name, value in made.items() if value == str(_PORT)]
