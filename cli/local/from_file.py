"""A deploy file as what `duet up` starts on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cli.local.model import Model
from cli.local.plan import Plan, Wanted, gateway_port
from common.errors import ConfigurationError
from common.ports import require_free
from common.topology import EnginePlan, Topology, engines
from common.topology.kv import KV, connector_of, named
from common.topology.pipelines import Kind
from engines.talker.ask import Ask
from engines.thinker.launch import device_of
from engines.thinker.spec import Device, EngineSpec
from gateway.settings import Settings


def plan_of(topology: Topology, settings: Settings, *, model: str | None, platform: str | None) -> Plan:
    """`topology` is as `planned` makes it for `platform`. `model` stands in the place of all that the file names.

    Raises ConfigurationError for what this machine, or one gateway, cannot do: an unsplit Thinker, a model that is not
    here, devices that are not, a port that is taken.
    """
    file = topology.file
    if topology.pair is None:
        raise ConfigurationError(
            f"{file}: the Thinker is not split; expected prefill and decode, which a gateway needs: give --pd, or add "
            "pd: to stage 0"
        )
    plans = engines(topology, platform=platform)
    wanted = _wanted(file, plans, model)
    _require_devices(file, wanted)
    kv, name = connector_of(topology), named(topology.stage(topology.pair.prefill).settings.get(KV))
    assert kv is not None  # `check` asks for one on both sides
    assert name is not None
    plan = Plan(
        settings=settings,
        model=replace(_thinkers(wanted), name=_name(file, wanted)),
        port=gateway_port(settings),
        connector=name,
        lease=kv.lease,
        wanted=tuple(wanted),
        notes=tuple(f"{one.name} is not told {', '.join(lost)}" for one in plans if (lost := _not_told(one))),
    )
    _require_ports(file, plan)
    return plan


def _wanted(file: str, plans: Sequence[EnginePlan], model: str | None) -> list[Wanted]:
    speaks = any(plan.kind is Kind.TALKER for plan in plans)
    found: dict[str, Model] = {}
    wanted = []
    for plan in plans:
        name = model or plan.model
        if name is None:
            raise ConfigurationError(f"{file}: {plan.name} has no model: add model: to the file, or give --model")
        if name not in found:
            found[name] = _model(name, "--model" if model else f"{file}: model", speaks)
        wanted.append(Wanted(plan, found[name], _device(file, plan)))
    return wanted


def _model(name: str, said: str, speaks: bool) -> Model:
    model = Model.of(name, said)
    if speaks and not model.speaks:
        raise ConfigurationError(f"{said} {name!r}: config.json has no talker_config: expected a Qwen3-Omni's folder")
    return replace(model, speaks=speaks)


def _device(file: str, plan: EnginePlan) -> Device:
    match plan.device:
        case "cpu" | "cuda":
            return plan.device
    raise ConfigurationError(f"{file}: {plan.name} is for {plan.device}; expected cpu or cuda, which duet up starts")


def _require_devices(file: str, wanted: Sequence[Wanted]) -> None:
    """Looks for a GPU only where one is asked for: that takes seconds."""
    on_gpu = [one.plan for one in wanted if one.device == "cuda"]
    if on_gpu and device_of(EngineSpec("", on_gpu[0].role, 0)) != "cuda":
        names = ", ".join(plan.name for plan in on_gpu)
        raise ConfigurationError(
            f"{file}: {names} run on GPUs, and torch sees none here: set devices: cpu, or give --platform cpu"
        )


def _require_ports(file: str, plan: Plan) -> None:
    for name, port in plan.kept_ports():
        if port == plan.port:
            raise ConfigurationError(f"{file}: {name}: port {port} is the gateway's; expected another one, or none")
        try:
            require_free("127.0.0.1", port)
        except ConfigurationError as e:
            raise ConfigurationError(f"{file}: {name}: {e.message}, or none") from None


def _thinkers(wanted: Sequence[Wanted]) -> Model:
    """The same on both sides, by the rules."""
    return next(one.model for one in wanted if one.plan.kind is Kind.THINKER)


def _name(file: str, wanted: Sequence[Wanted]) -> str:
    """What clients call the model. Talker and Code2Wav are found by the Thinkers' name, so there is one."""
    names = sorted({one.plan.served_name for one in wanted if one.plan.served_name is not None})
    if len(names) > 1:
        raise ConfigurationError(
            f"{file}: served_model_name differs: {', '.join(names)}; expected one for all stages, as a key of the file"
        )
    return names[0] if names else _thinkers(wanted).name


def _not_told(plan: EnginePlan) -> list[str]:
    """Settings of the file that this engine has no use for. A folder is one revision. A Talker has sampling defaults of
    its own, so that nothing is lost where the file says the same."""
    lost = list(plan.unused) if plan.revision is None else [*plan.unused, "revision"]
    if plan.kind is Kind.TALKER:
        own = {name: field.default for name, field in Ask.model_fields.items()}
        lost += [f"default_sampling_params.{name}" for name, v in plan.sampling.items() if own.get(name) != v]
    return lost
