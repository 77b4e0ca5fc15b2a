"""What `duet up` starts, as values; nothing is started here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.local.engines import LocalEngine, code2wav, talker, thinker
from cli.local.model import Model
from common.connectors import connector
from common.engine import Role
from common.ports import free_ports
from engines.code2wav.launch import Code2WavSpec
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
        thinkers = [f"{role.value}-{n + 1}" for role, count in counts.items() for n in range(count)]
        return [*thinkers, "talker", "code2wav"] if self.model.speaks else thinkers

    def engines(self, rows: Path) -> list[LocalEngine]:
        """All of them, on ports that are free now. Those of a model that speaks publish in the folder `rows`.

        Only when the model is there.
        """
        roles = [Role.PREFILL] * self.prefill + [Role.DECODE] * self.decode
        ports = iter(free_ports(2 * len(roles) + 2))
        flags = self.model.maker.flags if self.model.maker is not None else ()
        found = []
        for name, role in zip(self.engine_names, roles, strict=False):
            spec = self._engine(name, self.model.directory, role, next(ports), rows)
            split = replace(spec, connector=self.settings.connector, lease=self.settings.kv_lease, extra=flags)
            found.append(thinker(name, replace(split, side_port=next(ports))))
        if self.model.speaks:
            found.append(talker("talker", self._engine("talker", self.model.talker, Role.BOTH, next(ports), rows)))
            found.append(code2wav("code2wav", self._code2wav(next(ports))))
        return found

    def gateway(self, started: Sequence[LocalEngine], redis_url: str) -> list[str]:
        """The gateway's command line: what this plan decides. The other settings, keys among them, it reads from the
        environment, as they were read for this plan."""
        command = [sys.executable, "-m", "cli.main", "gateway", "--host", self.settings.host, "--port", str(self.port)]
        command += ["--connector", self.settings.connector, "--redis-url", redis_url]
        if self.settings.kv_lease is not None:
            command += ["--kv-lease", str(self.settings.kv_lease)]
        for engine in started:
            command += [f"--{engine.stage.value}", engine.told]
        return command

    def _engine(self, name: str, model: Path, role: Role, port: int, rows: Path) -> EngineSpec:
        return EngineSpec(
            model=str(model),
            role=role,
            port=port,
            served_name=self.model.name,
            connector=None,
            channel=f"ipc://{rows / name}" if self.model.speaks else None,
            device=self.device,
            dtype=self.dtype,
            max_model_len=self.max_model_len,
            log_requests=True,
            api_key=self._engine_key,
        )

    def _code2wav(self, port: int) -> Code2WavSpec:
        return Code2WavSpec(
            model=str(self.model.directory),
            port=port,
            served_name=self.model.name,
            device=self.device,
            api_key=self._engine_key,
        )

    @property
    def _engine_key(self) -> str | None:
        key = self.settings.engine_api_key
        return key.get_secret_value() if key is not None else None
