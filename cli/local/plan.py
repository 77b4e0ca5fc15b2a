"""What `duet up` starts, as values; nothing is started here.

A plan is a list of `EnginePlan`, made of numbers (`Plan.of`) or of a deploy file (`from_file`). From there on there is
one way to a command line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.local.engines import LocalEngine, code2wav, talker, thinker
from cli.local.model import Model
from cli.local.ports import Ports
from common.connectors import connector
from common.engine import Role
from common.ports import free_ports
from common.scratch import variables
from common.topology import EnginePlan
from common.topology.kv import port_variables
from common.topology.pipelines import Kind
from engines.code2wav.launch import Code2WavSpec
from engines.thinker.spec import Device, EngineSpec
from gateway.settings import Settings

_FROM_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a server on all addresses is reached from this machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One engine, the model that it serves, and where it runs: `device` may leave that to torch."""

    plan: EnginePlan
    model: Model
    device: Device


@dataclass(frozen=True, slots=True)
class Plan:
    """`model` is what clients ask for, `port` is the gateway's. `connector` and `lease` are the split's, the lease in
    seconds, None for the connector's own. `notes` are to be said before the start."""

    settings: Settings
    model: Model
    port: int
    connector: str
    lease: float | None
    wanted: tuple[Wanted, ...]
    notes: tuple[str, ...] = ()

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
        """`prefill` and `decode` are numbers of engines, `max_model_len` is tokens. Raises ConfigurationError for a
        connector that is not known."""
        connector(settings.connector, lease=settings.kv_lease)
        flags = ("--max-model-len", str(max_model_len), *(() if dtype == "auto" else ("--dtype", dtype)))
        plans = [
            *(_counted(f"{Role.PREFILL}-{n + 1}", Role.PREFILL, device, flags) for n in range(prefill)),
            *(_counted(f"{Role.DECODE}-{n + 1}", Role.DECODE, device, flags) for n in range(decode)),
        ]
        if model.speaks:
            plans += [_counted("talker", Role.TALKER, device, flags), _counted("code2wav", Role.CODE2WAV, device)]
        wanted = tuple(Wanted(plan, model, device) for plan in plans)
        return cls(settings, model, gateway_port(settings), settings.connector, settings.kv_lease, wanted)

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
        return [wanted.plan.name for wanted in self.wanted]

    @property
    def models(self) -> list[Model]:
        """What must be there before `engines` is asked."""
        return list(dict.fromkeys(wanted.model for wanted in self.wanted))

    def kept_ports(self) -> Iterator[tuple[str, int]]:
        """Ports that engines must have, each with its engine's name."""
        for wanted in self.wanted:
            plan = wanted.plan
            side_port = self._side_port(plan)
            rest = () if side_port is None else range(side_port, side_port + plan.ranks)
            yield from ((plan.name, port) for port in (plan.port, *rest) if port is not None)

    def engines(self, folder: Path) -> list[LocalEngine]:
        """All of them, on the ports that they must have or on free ones. What they leave behind is in `folder`, where
        those of a model that speaks publish. Only when the models are there.
        """
        ports = Ports([self.port, *(port for _, port in self.kept_ports())])
        found: list[LocalEngine] = []
        for at, wanted in enumerate(self.wanted):
            engine = self._engine(wanted, ports, folder)
            after = [other.plan.name for other in self.wanted[:at] if _share(other.plan, wanted.plan)]
            env = {**variables(folder), **engine.env, **wanted.plan.env}
            found.append(replace(engine, env=env, after=after))
        return found

    def gateway(self, started: Sequence[LocalEngine], redis_url: str) -> list[str]:
        """The gateway's command line: what this plan decides. The other settings, keys among them, it reads from the
        environment, as they were read for this plan."""
        command = [sys.executable, "-m", "cli.main", "gateway", "--host", self.settings.host, "--port", str(self.port)]
        command += ["--connector", self.connector, "--redis-url", redis_url]
        if self.lease is not None:
            command += ["--kv-lease", str(self.lease)]
        for engine in started:
            command += [f"--{engine.stage.value}", engine.told]
        return command

    def _engine(self, wanted: Wanted, ports: Ports, folder: Path) -> LocalEngine:
        plan, model = wanted.plan, wanted.model
        port = plan.port or ports.take()
        if plan.kind is Kind.CODE2WAV:
            spec = Code2WavSpec(
                str(model.directory), port, served_name=self.model.name, device=wanted.device, api_key=self._engine_key
            )
            return code2wav(plan.name, spec, plan.args)
        common = EngineSpec(
            model=str(model.talker if plan.kind is Kind.TALKER else model.directory),
            role=Role.BOTH if plan.kind is Kind.TALKER else plan.role,
            port=port,
            served_name=self.model.name,
            connector=None,
            channel=f"ipc://{folder / plan.name}" if self.model.speaks else None,
            device=wanted.device,
            log_requests=True,
            api_key=self._engine_key,
            extra=plan.args,
        )
        if plan.kind is Kind.TALKER:
            return talker(plan.name, common)
        side_port = self._side_port(plan) or ports.take(plan.ranks)
        split = replace(common, connector=self.connector, lease=self.lease, side_port=side_port)
        return thinker(plan.name, split)

    def _side_port(self, plan: EnginePlan) -> int | None:
        """What is set for its KV connector: by name, or as the connector's own variable."""
        if plan.side_port is not None or plan.kind is not Kind.THINKER:
            return plan.side_port
        names = port_variables(connector(self.connector, lease=self.lease))
        own = [plan.env[name] for name in names if plan.env.get(name, "").isdigit()]
        return int(own[0]) if own else None

    @property
    def _engine_key(self) -> str | None:
        key = self.settings.engine_api_key
        return key.get_secret_value() if key is not None else None


def gateway_port(settings: Settings) -> int:
    return settings.port or free_ports(1)[0]


def _counted(name: str, role: Role, device: Device, args: tuple[str, ...] = ()) -> EnginePlan:
    kind = Kind.THINKER if role.thinks else Kind(role.value)
    return EnginePlan(name=name, kind=kind, role=role, device=device, args=args)


def _share(one: EnginePlan, other: EnginePlan) -> bool:
    """Whether they have a device in common. vLLM measures what is free on a device while it starts, and nobody else may
    take of it meanwhile."""
    return bool(set(one.devices) & set(other.devices))
