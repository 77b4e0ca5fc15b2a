"""Three stages become four: the Thinker is split in two, everything else keeps its settings and moves up by one.

    0 thinker ──> 1 talker ──> 2 code2wav        0 prefill ══KV══> 1 decode ──> 2 talker ──> 3 code2wav
        │text                     │audio                              │text                     │audio

Nothing of the file is lost. A setting of the Thinker's goes to both sides; what leaves the Thinker (its text, its stage
connectors) goes to decode alone. Whatever replaces a setting or is added to them is told in a `Note`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from common.connectors import DEFAULT, Connector
from common.engine import Role
from common.errors import ConfigurationError
from common.topology.devices import devices, free, in_use, replicas, world
from common.topology.fault import NOWHERE, Place, TopologyInvalid
from common.topology.kv import KV, known, laid_over
from common.topology.pipelines import Kind
from common.topology.topology import Pair, Platform, Settings, Sides, Split, Stage, Topology, device_of


class How(StrEnum):
    """`overridden`: `pd:` says otherwise than the Thinker. `chosen`: the file left it open. `injected`: the split's."""

    OVERRIDDEN = "overridden"
    CHOSEN = "chosen"
    INJECTED = "injected"


@dataclass(frozen=True, slots=True)
class Note:
    """One setting of the expanded plan that is not simply the Thinker's. `place` is where the value it replaced, or
    what asked for it, stands; `platform` is None for all."""

    how: How
    stage: int
    name: str
    was: Any
    now: Any
    place: Place = NOWHERE
    platform: str | None = None

    def __str__(self) -> str:
        where = f"stage {self.stage}{f' on {self.platform}' if self.platform else ''}: {self.name}"
        if self.how is How.OVERRIDDEN:
            return f"{where} is {self.now!r} by pd, overriding {self.was!r} of {self.place}"
        return f"{where} {self.how}" + ("" if self.how is How.INJECTED else f": {self.now!r}")


@dataclass(frozen=True, slots=True)
class Expansion:
    topology: Topology
    notes: tuple[Note, ...] = ()


def expand(topology: Topology, *, platform: str | None = None) -> Expansion:
    """The split that `topology.split` asks for; of connector defaults if it asks for none.

    `platform` is one that the plan is for though the file may not name it. A topology that has a pair already is
    returned as it is. Raises TopologyInvalid for a split that cannot be made.
    """
    if topology.pair is not None:
        return Expansion(topology)
    return _Expander(topology).run(platform)


def unsplit(topology: Topology) -> Topology:
    """The stages without the split that the file asks for. Raises ConfigurationError where four are written by hand."""
    if topology.pair is not None:
        pair = topology.pair
        raise ConfigurationError(
            f"{topology.file}: stages {pair.prefill} and {pair.decode} are a split written by hand, and their settings "
            "may differ: for an unsplit run write one thinker stage in their place"
        )
    return replace(topology, split=None)


class _Expander:
    def __init__(self, topology: Topology) -> None:
        self.old = topology
        self.thinker = topology.of(Kind.THINKER)[0]
        self.split = topology.split or Split(place=self.thinker.settings.place)
        self.pair = Pair(self.thinker.id, self.thinker.id + 1)
        self.notes: list[Note] = []

    def run(self, platform: str | None) -> Expansion:
        name = self.split.connector or DEFAULT
        kv = known(self.old, name, self.split.where("connector"))
        self.split = replace(self.split, connector=kv.name if name.isidentifier() else name)
        self._refuse_own_kv()
        base = self._injected(self._halved(), kv)
        names = dict.fromkeys([*self.old.platforms, *([] if platform is None else [platform])])
        platforms = {name: self._platform(base, name, kv) for name in names}
        return Expansion(replace(base, platforms=platforms), tuple(self.notes))

    def _refuse_own_kv(self) -> None:
        platforms = self.old.platforms.values()
        entries = [self.thinker.settings, *(p.stages.get(self.thinker.id, Settings()) for p in platforms)]
        faults = [
            self.old.fault(
                "split.kv_transfer_config",
                entry.where(KV),
                f"{self.thinker.name} has a {KV} of its own, and the split gives prefill and decode one each",
                "name the connector in pd.connector; what it needs beside goes into pd.prefill and pd.decode",
            )
            for entry in entries
            if KV in entry.values
        ]
        if faults:
            raise TopologyInvalid(faults)

    def _halved(self) -> Topology:
        """Four stages with the settings that both sides have, pd's laid over them; devices and KV are still to come."""
        stages: list[Stage] = []
        for stage in self.old:
            moved = replace(
                stage,
                id=self._moved(stage.id),
                sources=tuple(self._moved(source) for source in stage.sources),
                inputs={self._moved(id_): name for id_, name in stage.inputs.items()},
                outputs={self._moved(id_): name for id_, name in stage.outputs.items()},
            )
            stages += [moved] if stage is not self.thinker else self._two(moved)
        edges = tuple(
            {**edge, "from": self._moved(edge["from"]), "to": self._moved(edge["to"])} for edge in self.old.edges
        )
        split = replace(self.split, sides=Sides())
        return replace(self.old, stages=tuple(stages), edges=edges, platforms={}, split=split, pair=self.pair)

    def _moved(self, id_: int) -> int:
        """A stage's id after the split; of the Thinker's, decode's: that is where its output comes from."""
        return id_ + 1 if id_ >= self.thinker.id else id_

    def _two(self, decode: Stage) -> list[Stage]:
        sides = self.split.sides
        prefill = Stage(
            id=self.pair.prefill,
            kind=Kind.THINKER,
            role=Role.PREFILL,
            sources=(),
            output=None,
            settings=self._side(self.thinker.settings, sides.prefill, self.pair.prefill),
        )
        settings = self._side(self.thinker.settings, sides.decode, self.pair.decode)
        return [prefill, replace(decode, role=Role.DECODE, sources=(self.pair.prefill,), settings=settings)]

    def _side(self, both: Settings, own: Settings, stage: int, platform: str | None = None) -> Settings:
        merged = both.over(own.without(KV))
        for name, was in both.values.items():
            now = merged.values[name]
            if now != was:
                self.notes.append(Note(How.OVERRIDDEN, stage, name, was, now, both.where(name), platform))
        return merged

    def _injected(self, halved: Topology, kv: Connector) -> Topology:
        placed = self._placed(halved)
        stages = [
            replace(stage, settings=self._with_kv(stage, stage.settings, kv, Sides(), None))
            if stage.kind is Kind.THINKER
            else stage
            for stage in placed.stages
        ]
        return replace(placed, stages=tuple(stages))

    def _placed(self, topology: Topology) -> Topology:
        """Decode moved to devices of its own, unless pd names them or the Thinker runs on the CPU."""
        decode = topology.stage(self.pair.decode)
        if "devices" in self.split.sides.decode.values or not devices(decode):
            return topology
        settings = self._elsewhere(topology, decode.settings, None)
        stages = tuple(replace(s, settings=settings) if s is decode else s for s in topology.stages)
        return replace(topology, stages=stages)

    def _elsewhere(self, topology: Topology, settings: Settings, platform: str | None) -> Settings:
        """Decode's settings with the lowest free ids; as they are where ids cannot be counted."""
        decode = topology.stage(self.pair.decode)
        others = [stage for stage in topology.stages if stage.id != decode.id]
        chosen = free(replicas(decode) * world(topology, decode), in_use(topology, others))
        if chosen is None:
            return settings
        place = settings.where("devices")
        was = decode.settings.get("devices")
        self.notes.append(Note(How.CHOSEN, decode.id, "devices", was, chosen, place, platform))
        return settings.having(place, devices=chosen)

    def _with_kv(self, stage: Stage, settings: Settings, kv: Connector, sides: Sides, platform: str | None) -> Settings:
        """`settings` of this side with its connector's configuration, and over it what a platform's pd adds."""
        own = sides.of(stage.role)
        config = laid_over(self._kv_config(stage, kv, platform), own.get(KV, {}))
        said = (sides_own for sides_own in (own, self.split.sides.of(stage.role)) if KV in sides_own.values)
        place = next((sides_own.where(KV) for sides_own in said), self.split.place)
        self.notes.append(Note(How.INJECTED, stage.id, KV, None, config, place, platform))
        return settings.having(place, **{KV: config})

    def _kv_config(self, stage: Stage, kv: Connector, platform: str | None) -> dict[str, Any]:
        """The connector's own configuration, and over it what pd's side adds."""
        made = kv.engine_config(stage.role, device=device_of(stage.settings.get("devices"), platform))
        return laid_over(made, self.split.sides.of(stage.role).get(KV, {}))

    def _platform(self, base: Topology, name: str, kv: Connector) -> Platform:
        """What a kind of machine has over the four stages. It beats pd, as it beats the Thinker's own settings."""
        old = self.old.platforms.get(name, Platform())
        both = old.stages.get(self.thinker.id, Settings())
        stages = {self._moved(id_): entry for id_, entry in old.stages.items() if id_ != self.thinker.id}
        for id_, own in ((self.pair.prefill, old.sides.prefill), (self.pair.decode, old.sides.decode)):
            stages[id_] = self._side(both, own, id_, name)
        draft = replace(base, platforms={name: Platform(stages, shared=old.shared)}).on(name)
        if self._must_move(base, draft, both, old.sides):
            stages[self.pair.decode] = self._elsewhere(draft, stages[self.pair.decode], name)
        for id_ in (self.pair.prefill, self.pair.decode):
            stage = draft.stage(id_)
            if KV in old.sides.of(stage.role).values or self._kv_config(stage, kv, name) != base.stage(
                id_
            ).settings.get(KV):
                stages[id_] = self._with_kv(stage, stages[id_], kv, old.sides, name)
        kept = {id_: entry for id_, entry in sorted(stages.items()) if entry.values}
        return Platform(kept, shared=old.shared)

    def _must_move(self, base: Topology, draft: Topology, both: Settings, sides: Sides) -> bool:
        """Whether this platform leaves decode on devices that are not its own, by no word of pd's."""
        decode = draft.stage(self.pair.decode)
        mine = devices(decode)
        if not mine or "devices" in sides.decode.values:
            return False
        if "devices" in both.values:
            return True
        if "devices" in self.split.sides.decode.values:
            return False
        others = [stage for stage in draft.stages if stage.id != decode.id]
        count = replicas(decode) * world(draft, decode)
        return len(mine) != count or bool(set(mine) & in_use(draft, others))
