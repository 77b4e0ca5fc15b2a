"""A topology as a value: what stands in a deploy file, with each stage's place in the pipeline made plain.

The same value describes three stages and the four of a split. `pair` tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from common.engine import Role
from common.topology.fault import NOWHERE, Fault, Place
from common.topology.names import PLATFORMS
from common.topology.pipelines import Kind
from common.topology.schema import ENGINE_WIDE

DEEP = ("default_sampling_params", "default_pooling_params", "subtalker_sampling_params", "env")
"""Settings that an override adds to; it replaces all others as a whole."""
CPU = "cpu"
"""What `devices` says of a stage that runs on the machine's CPU, which several may share."""


@dataclass(frozen=True, slots=True)
class Settings:
    """JSON values by name as the file has them, and where each stands. Equal if the values are."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)
    place: Place = field(default=NOWHERE, compare=False)
    """Of the mapping itself."""

    def get(self, name: str, default: Any = None) -> Any:
        found = self.values.get(name)
        return default if found is None else found

    def where(self, name: str) -> Place:
        return self.places.get(name, self.place)

    def over(self, other: Settings) -> Settings:
        """These with the other's laid over them: one level deep in `DEEP`, else as a whole."""
        values = dict(self.values)
        for name, value in other.values.items():
            mine = values.get(name)
            deep = name in DEEP and isinstance(mine, Mapping) and isinstance(value, Mapping)
            values[name] = {**mine, **value} if deep and mine is not None else value
        return Settings(values, {**self.places, **other.places}, self.place)

    def having(self, place: Place, **values: Any) -> Settings:
        """These with some set anew, by what stands at `place`."""
        return replace(self, values={**self.values, **values}, places={**self.places, **dict.fromkeys(values, place)})

    def without(self, *names: str) -> Settings:
        return replace(self, values={name: value for name, value in self.values.items() if name not in names})


@dataclass(frozen=True, slots=True)
class Stage:
    """`sources` are ids of stages, `output` is what leaves for the client. `role` is what its engines are for: `both`
    of a Thinker that is not split. `inputs` and `outputs` name stage connectors by the stage at the other end."""

    id: int
    kind: Kind
    role: Role
    sources: tuple[int, ...]
    output: str | None
    settings: Settings
    inputs: Mapping[int, str] = field(default_factory=dict)
    outputs: Mapping[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people: `stage 1 (thinker decode)`."""
        return f"stage {self.id} ({self.kind}{f' {self.role}' if self.is_side else ''})"

    @property
    def short(self) -> str:
        """`prefill`, `decode`, `thinker`, `talker` or `code2wav`."""
        return self.role.value if self.is_side else self.kind.value

    @property
    def is_side(self) -> bool:
        """Whether it is one side of a split."""
        return self.role in (Role.PREFILL, Role.DECODE)


@dataclass(frozen=True, slots=True)
class Sides:
    """What each side of a split has over the Thinker's settings."""

    prefill: Settings = Settings()
    decode: Settings = Settings()

    def of(self, role: Role) -> Settings:
        return self.prefill if role is Role.PREFILL else self.decode


@dataclass(frozen=True, slots=True)
class Platform:
    """What one kind of machine has over the stages' settings, by stage id. `sides` belong to the Thinker's."""

    stages: Mapping[int, Settings] = field(default_factory=dict)
    sides: Sides = Sides()
    shared: Settings = Settings()


@dataclass(frozen=True, slots=True)
class Split:
    """How a Thinker is to be split, or how it is. `connector` is a name for `common.connectors`, `lease` and
    `expected_queueing` are seconds, None where the file says nothing."""

    connector: str | None = None
    lease: float | None = None
    expected_queueing: float | None = None
    sides: Sides = field(default=Sides(), compare=False)
    place: Place = field(default=NOWHERE, compare=False)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)

    def where(self, name: str) -> Place:
        return self.places.get(name, self.place)


@dataclass(frozen=True, slots=True)
class Pair:
    """The two stage ids of a split."""

    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class Topology:
    """`shared` are the file's own keys, `stages` stand by id. `split` without a `pair` is what `expand` will do."""

    file: str
    pipeline: str
    stages: tuple[Stage, ...]
    shared: Settings = Settings()
    connectors: Mapping[str, Any] = field(default_factory=dict)
    edges: tuple[Mapping[str, Any], ...] = ()
    platforms: Mapping[str, Platform] = field(default_factory=dict)
    split: Split | None = None
    pair: Pair | None = None

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def stage(self, id_: int) -> Stage:
        return next(stage for stage in self.stages if stage.id == id_)

    def of(self, kind: Kind) -> list[Stage]:
        return [stage for stage in self.stages if stage.kind is kind]

    def consumers(self, id_: int) -> list[Stage]:
        return [stage for stage in self.stages if id_ in stage.sources]

    def value(self, stage: Stage, name: str, default: Any = None) -> Any:
        """A stage's setting, or the file's where it is one for all engines."""
        shared = self.shared.get(name) if name in (*ENGINE_WIDE, "async_chunk") else None
        return stage.settings.get(name, default if shared is None else shared)

    def on(self, platform: str | None) -> Topology:
        """As it is on one kind of machine: that platform's settings laid over the stages', and no platforms left."""
        found = self.platforms.get(platform, Platform()) if platform is not None else Platform()
        stages = tuple(
            replace(stage, settings=stage.settings.over(found.stages.get(stage.id, Settings())))
            for stage in self.stages
        )
        return replace(self, stages=stages, shared=self.shared.over(found.shared), platforms={})

    def fault(self, rule: str, place: Place, what: str, do: str) -> Fault:
        return Fault(rule, what, do, place, self.file)


def device_of(devices: str | None, platform: str | None) -> str:
    """What torch calls the devices of a stage: `cpu`, `cuda` and so on."""
    if devices is not None and devices.strip() == CPU:
        return CPU
    return PLATFORMS.get(platform or "cuda", "cuda")
