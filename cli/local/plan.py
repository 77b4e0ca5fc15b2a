"""What `duet up` starts: pure, but for looking for free ports."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from common.cache import cache_dir
from common.engine import Role
from common.errors import ConfigurationError
from common.ports import free_ports
from engines.thinker.spec import EngineSpec

MAKERS = {"tiny": ("engines.tiny", "tiny-1"), "smollm2": ("engines.smollm2", "smollm2-1")}
"""Model names that are made here: the module that makes each, and its folder in the cache. The number goes up when
what is made changes."""


@dataclass(frozen=True, slots=True)
class Plan:
    model: str
    host: str
    port: int
    prefill: int
    decode: int
    connector: str
    dtype: str
    max_model_len: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def served_name(self) -> str:
        return self.model if self.model in MAKERS else Path(self.model).name

    @property
    def model_dir(self) -> Path:
        """Raises ConfigurationError for a name that is neither known nor a folder with a model."""
        if self.model in MAKERS:
            return cache_dir() / MAKERS[self.model][1]
        path = Path(self.model)
        if not (path / "config.json").is_file():
            known = ", ".join(MAKERS)
            raise ConfigurationError(f"model {self.model!r}: expected {known}, or a folder with a config.json")
        return path.resolve()

    def make_model(self) -> list[str] | None:
        """The command that makes the model; None if it is there."""
        if self.model not in MAKERS or self.model_dir.exists():
            return None
        return [sys.executable, "-m", MAKERS[self.model][0], str(self.model_dir)]

    def engines(self) -> list[EngineSpec]:
        """A spec for each engine, on free ports."""
        roles = [Role.PREFILL] * self.prefill + [Role.DECODE] * self.decode
        ports = free_ports(2 * len(roles))
        return [
            EngineSpec(
                model=str(self.model_dir),
                role=role,
                port=ports[2 * i],
                side_port=ports[2 * i + 1],
                served_name=self.served_name,
                connector=self.connector,
                dtype=self.dtype,
                max_model_len=self.max_model_len,
                log_requests=True,
            )
            for i, role in enumerate(roles)
        ]

    def gateway(self, engines: list[EngineSpec], redis_url: str) -> list[str]:
        """The gateway's command line."""
        command = [sys.executable, "-m", "cli.main", "gateway", "--host", self.host, "--port", str(self.port)]
        command += ["--connector", self.connector, "--redis-url", redis_url]
        for engine in engines:
            command += [f"--{engine.role.value}", f"http://{engine.host}:{engine.port}"]
        return command


def log_dir() -> Path:
    """A folder for this run's logs."""
    path = cache_dir() / "logs" / str(os.getpid())
    path.mkdir(parents=True, exist_ok=True)
    return path
