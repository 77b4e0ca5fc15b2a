"""What `duet up` starts, as values; nothing is started here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from urllib.parse import urlencode

from cli.local.model import Model
from common.connectors import connector
from common.engine import Role
from common.ports import free_ports
from engines.thinker.spec import Device, EngineSpec
from gateway.settings import Settings

_FROM_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a server on all addresses is reached from this machine."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`prefill` and `decode` are numbers of engines, `port` is the gateway's, `max_model_len` is tokens."""

    settings: Settings
    model: Model
    port: int
    prefill: int
    decode: int
    device: Device
    dtype: str
    max_model_len: int

    @classmethod
    def of(
        cls,
        settings: Settings,
        model: Model,
        *,
        prefill: int,
        decode: int,
        device: Device,
        dtype: str,
        max_model_len: int,
    ) -> Plan:
        """Raises ConfigurationError for a connector that is not known."""
        connector(settings.connector, lease=settings.kv_lease)
        port = settings.port or free_ports(1)[0]
        return cls(settings, model, port, prefill, decode, device, dtype, max_model_len)

    @property
    def url(self) -> str:
        """The gateway's, from this machine."""
        host = _FROM_HERE.get(self.settings.host, self.settings.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def keyed(self) -> bool:
        """Whether clients need a key."""
        return bool(self.settings.api_key)

    @property
    def engine_names(self) -> list[str]:
        """In the order of `engines`."""
        counts = {Role.PREFILL: self.prefill, Role.DECODE: self.decode}
        return [f"{role.value}-{n + 1}" for role, count in counts.items() for n in range(count)]

    def engines(self) -> list[EngineSpec]:
        """A spec for each engine, on ports that are free now."""
        roles = [Role.PREFILL] * self.prefill + [Role.DECODE] * self.decode
        ports = free_ports(2 * len(roles))
        key = self.settings.engine_api_key
        return [
            EngineSpec(
                model=str(self.model.directory),
                role=role,
                port=ports[2 * i],
                side_port=ports[2 * i + 1],
                served_name=self.model.name,
                connector=self.settings.connector,
                lease=self.settings.kv_lease,
                device=self.device,
                dtype=self.dtype,
                max_model_len=self.max_model_len,
                log_requests=True,
                api_key=key.get_secret_value() if key is not None else None,
            )
            for i, role in enumerate(roles)
        ]

    def gateway(self, engines: list[EngineSpec], redis_url: str) -> list[str]:
        """The gateway's command line: what this plan decides. The other settings, keys among them, it reads from the
        environment, as they were read for this plan."""
        command = [sys.executable, "-m", "cli.main", "gateway", "--host", self.settings.host, "--port", str(self.port)]
        command += ["--connector", self.settings.connector, "--redis-url", redis_url]
        if self.settings.kv_lease is not None:
            command += ["--kv-lease", str(self.settings.kv_lease)]
        for engine in engines:
            command += [f"--{engine.role.value}", self._url(engine)]
        return command

    def _url(self, engine: EngineSpec) -> str:
        """An engine's address for the gateway, with what its connector must be told of it."""
        url = f"http://{engine.host}:{engine.port}"
        if engine.role is not Role.PREFILL or engine.side_port is None:
            return url
        kv = connector(self.settings.connector, lease=self.settings.kv_lease)
        options = kv.url_options(side_port=engine.side_port)
        return f"{url}?{urlencode(options)}" if options else url
