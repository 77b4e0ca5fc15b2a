"""A topology as engines to start: for each replica of each stage its place, its flags and its environment.

Nothing is started here, and no port is chosen that the file does not name. What an engine has no use for is named in
`unused`, so that a launcher can tell it instead of dropping it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.engine import Role
from common.topology.devices import devices, replicas, world
from common.topology.kv import KV
from common.topology.names import ENGINE_ARGS, KV_TRANSFER
from common.topology.pipelines import Kind
from common.topology.schema import ENGINE_WIDE
from common.topology.stage_rules import streams
from common.topology.topology import Stage, Topology, device_of

VISIBLE = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "rocm": "HIP_VISIBLE_DEVICES",
    "musa": "MUSA_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
}
"""The variable that shows an engine its devices and no others."""
OWN_FIELDS = ("model", "served_model_name", "revision")
"""Engine arguments that stand in fields of `EnginePlan`."""
CHUNKS = {
    "initial_codec_chunk_frames": "--first-chunk",
    "codec_chunk_frames": "--chunk",
    "codec_left_context_frames": "--left-context",
}
"""What a stage connector's `extra` says of Code2Wav's chunks, as flags of `duet engine code2wav`."""
VOCODER_DTYPES = ("float32", "bfloat16")
SAMPLING = "default_sampling_params"
GENERATION = "override_generation_config"
GENERATED = frozenset(
    ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
)
"""Sampling parameters of which vLLM takes a default there. Its `max_new_tokens` is none of them: that is a limit, for
requests that ask for more too."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One engine to start. `stage` is its stage's id, `sources` the ids that feed it; start those behind it first.

    `device` is what torch calls its devices (`cpu`, `cuda`), `devices` are ids, empty on a CPU and where the file names
    none. `port` and `side_port` are None where any free one will do; the connector takes `ranks` ports from the latter
    on. `args` are vLLM's flags for a Thinker and a Talker and win over a launcher's own when they stand last; for
    Code2Wav they are those of `duet engine code2wav`. `env` is added to the environment. `sampling` is what a request
    has where it says nothing; a Thinker's `args` tell as much of it as vLLM can be told, `unused` names the rest.
    """

    name: str
    kind: Kind
    role: Role
    device: str
    stage: int = 0
    sources: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    model: str | None = None
    revision: str | None = None
    served_name: str | None = None
    port: int | None = None
    side_port: int | None = None
    ranks: int = 1
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def engines(topology: Topology, *, platform: str | None = None) -> list[EnginePlan]:
    """An engine for each replica, those that are fed before those that feed them. `platform` is one of
    `common.topology.names.PLATFORMS`; without it the file is taken as it stands, for CUDA devices or the CPU.

    The topology must have passed `check`.
    """
    here = topology.on(platform)
    found = [engine for stage in here for engine in _of_stage(here, stage, platform)]
    return sorted(found, key=lambda engine: -engine.stage)


def _of_stage(topology: Topology, stage: Stage, platform: str | None) -> Iterator[EnginePlan]:
    settings = {name: value for name, value in _settings(topology, stage).items() if value is not None}
    args, unused = _args(topology, stage, settings)
    unused = [*unused, *_of_no_engine(topology, stage)]
    ids, size = devices(stage) or (), world(topology, stage)
    device = device_of(settings.get("devices"), platform)
    env = {name: _plain(value) for name, value in settings.get("env", {}).items()}
    count, ranks = replicas(stage), int(settings.get("data_parallel_size", 1))
    for i in range(count):
        mine = ids[i * size : (i + 1) * size]
        shown = {VISIBLE[platform or "cuda"]: ",".join(mine)} if mine and device != "cpu" else {}
        yield EnginePlan(
            name=stage.short if count == 1 else f"{stage.short}-{i + 1}",
            stage=stage.id,
            kind=stage.kind,
            role=stage.role,
            sources=stage.sources,
            device=device,
            devices=mine,
            model=settings.get("model"),
            revision=settings.get("revision"),
            served_name=settings.get("served_model_name"),
            port=_counted(settings.get("port"), i),
            side_port=_counted(settings.get("side_port"), i * ranks),
            ranks=ranks,
            args=tuple(args),
            env={**env, **shown},
            sampling=settings.get(SAMPLING, {}),
            unused=tuple(unused),
        )


def _settings(topology: Topology, stage: Stage) -> dict[str, Any]:
    shared = {name: value for name, value in topology.shared.values.items() if name in ENGINE_WIDE}
    return {**shared, **stage.settings.values}


def _of_no_engine(topology: Topology, stage: Stage) -> list[str]:
    """What the file says for all stages and no engine of Duet's is told. Duet always streams, so a no goes unheard."""
    told = {*ENGINE_WIDE, "async_chunk"}
    found = [name for name in topology.shared.values if name not in told]
    return found if streams(topology, stage) else [*found, "async_chunk"]


def _counted(first: int | None, by: int) -> int | None:
    return None if first is None else first + by


def _args(topology: Topology, stage: Stage, settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Flags, and the names of settings that no flag carries."""
    if stage.kind is Kind.CODE2WAV:
        return _code2wav(topology, stage, settings)
    args: list[str] = []
    unused = [name for name in settings if name not in ENGINE_ARGS | _CARRIED_ELSEWHERE]
    if stage.kind is Kind.THINKER:
        settings, lost = _sampled(settings)
        unused += lost
    for name, value in settings.items():
        if name == KV:
            unused += [f"{KV}.{field}" for field in value if field not in KV_TRANSFER]
            value = {field: v for field, v in value.items() if field in KV_TRANSFER}
        if name in ENGINE_ARGS and name not in OWN_FIELDS:
            args += flag(name, value)
    return args, unused


_CARRIED_ELSEWHERE = frozenset(("devices", "num_replicas", "env", "port", "side_port", SAMPLING, "async_chunk"))


def _sampled(settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A Thinker's settings with its sampling defaults where vLLM reads them, under what stands there already, and the
    names of those that it does not read."""
    defaults = settings.get(SAMPLING, {})
    told = {name: value for name, value in defaults.items() if name in GENERATED and value is not None}
    lost = [f"{SAMPLING}.{name}" for name in defaults if name not in GENERATED]
    if not told:
        return settings, lost
    return {**settings, GENERATION: {**told, **settings.get(GENERATION, {})}}, lost


def flag(name: str, value: Any) -> list[str]:
    """An engine argument as vLLM's command line takes it: mappings as JSON, lists one by one, true and false by the
    flag's two names."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    if isinstance(value, Mapping):
        return [f"--{dashed}", json.dumps(value)]
    if isinstance(value, list):
        return [f"--{dashed}", *(_plain(item) for item in value)]
    return [f"--{dashed}", _plain(value)]


def _code2wav(topology: Topology, stage: Stage, settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Code2Wav is no vLLM engine: it takes the sizes of chunks and of a batch, and nothing else of vLLM's."""
    args = ["--max-batch", str(settings["max_num_seqs"])] if "max_num_seqs" in settings else []
    for name in dict.fromkeys([*stage.inputs.values()]):
        extra = topology.connectors[name].get("extra", {})
        for key, option in CHUNKS.items():
            if key in extra:
                args += [option, _plain(extra[key])]
    used = {*_CARRIED_ELSEWHERE, "max_num_seqs", *OWN_FIELDS}
    if settings.get("dtype") in VOCODER_DTYPES:
        args += ["--dtype", settings["dtype"]]
        used.add("dtype")
    return args, [name for name in settings if name not in used]


def _plain(value: object) -> str:
    """A scalar as a command line or an environment takes it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)
