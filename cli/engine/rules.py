"""The rules of a deploy file, asked of one engine before it becomes vLLM: better than half a minute later, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError

from common.connectors import connector
from common.engine import Role
from common.topology.alone import check_alone
from common.topology.flags import settings_of
from common.topology.kv import KV
from common.topology.pipelines import Kind
from common.topology.schema import Count, KvTransfer, Port, Strict

if TYPE_CHECKING:
    from engines.thinker import EngineSpec


class _Told(Strict):
    """What rules look at, among what stands on vLLM's command line."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)
    port: Port | None = None
    data_parallel_size: Count | None = None
    enable_prefix_caching: bool | None = None
    kv_transfer_config: KvTransfer | None = None


def require_sound(kind: Kind, spec: EngineSpec) -> None:
    """Looks at what the flags make of it, those for vLLM included. Raises ConfigurationError."""
    settings: dict[str, Any] = {"port": spec.port, "side_port": spec.side_port}
    if spec.connector is not None:
        kv = connector(spec.connector, lease=spec.lease)
        settings[KV] = kv.engine_config(spec.role, device="cpu")  # of the device rules know nothing
    role = Role.TALKER if kind is Kind.TALKER else spec.role
    check_alone(kind, role, {**settings, **_told(spec)})


def _told(spec: EngineSpec) -> dict[str, Any]:
    """A value of the wrong type is left to vLLM, which says so in its own words."""
    found = settings_of(spec.extra)
    try:
        _Told.model_validate(found)
    except ValidationError as e:
        wrong = {error["loc"][0] for error in e.errors()}
        found = {name: value for name, value in found.items() if name not in wrong}
    return {name: value for name, value in found.items() if name in _Told.model_fields}
