"""The two sides of a split beside each other: whether decode can go on where prefill ends.

The same rules are asked of two stages of a file and of two engines that run, by what is known of them. Each message
names both sides, what each has, and the remedy.

| whose rules | |
| --- | --- |
| vLLM-Omni's | `kv_transfer_config` on both, `kv_role`, one connector, buffers, `tensor_parallel_size` |
| of practice | model, files, `max_model_len`, layout of KV, versions: else engines refuse, hang, or answer wrongly |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.connectors import Connector
from common.connectors.base import EngineFacts
from common.engine import Engine, Role
from common.topology.fault import NOWHERE, Fault, Place
from common.topology.kv import KV, named
from common.topology.topology import Stage, Topology

KV_ROLES = {Role.PREFILL: ("kv_producer", "kv_both"), Role.DECODE: ("kv_consumer", "kv_both")}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair. `name` is for messages, `kv` its `kv_transfer_config` (None: not known, or none).

    `whole` tells that all there is to know is in `facts`, so that what is missing is the engine's default. Of an
    engine that runs what is missing is not known, and not compared.
    """

    name: str
    leg: Role
    facts: Mapping[str, Any]
    whole: bool
    kv: Mapping[str, Any] | None = None
    where: Callable[[str], Place] = lambda _: NOWHERE
    file: str = ""

    @classmethod
    def of_stage(cls, topology: Topology, stage: Stage) -> Side:
        facts = {name: topology.value(stage, name) for name in (*SAME, *_DEFAULTS)}
        kv = stage.settings.get(KV)
        facts["connector"] = None if kv is None else named(kv)
        facts = {name: value for name, value in facts.items() if value is not None}
        return cls(stage.name, stage.role, facts, True, kv, stage.settings.where, topology.file)

    @classmethod
    def of_identity(cls, engine: Engine, leg: Role, identity: Mapping[str, Any]) -> Side:
        """What an engine says of itself (`GET /duet/identity`); null there is not known."""
        facts = {name: value for name, value in identity.items() if value is not None}
        return cls(f"{leg} {engine.id}", leg, facts, whole=False)

    def has(self, name: str) -> Any:
        """None where it is not known or, on a whole side, where it is a default without a value to name."""
        return self.facts.get(name, _DEFAULTS.get(name) if self.whole else None)

    def fault(self, rule: str, name: str, what: str, do: str) -> Fault:
        return Fault(rule, what, do, self.where(name), self.file)


_DEFAULTS: dict[str, Any] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "tokenizer_mode": "auto",
}
"""Engine defaults that have a name, so that "not set" and the default are the same."""
SAME: dict[str, str] = {
    "model": "decode would read KV of another model's weights",
    "revision": "decode would read KV of other weights",
    "hf_overrides": "the model is another with other overrides",
    "quantization": "KV of other weights is not the same",
    "tokenizer": "the same prompt would be other tokens on decode",
    "tokenizer_mode": "the same prompt would be other tokens on decode",
    "tokenizer_revision": "the same prompt would be other tokens on decode",
    "max_model_len": "a prompt that fits one would be refused by the other",
    "dtype": "the KV of one is not laid out as the other's",
    "kv_cache_dtype": "the KV of one is not laid out as the other's",
    "block_size": "blocks of one do not fit into the other's",
    "tensor_parallel_size": "each rank of decode fetches from the same rank of prefill",
    "pipeline_parallel_size": "each rank of decode fetches from the same rank of prefill",
    "vllm_version": "connectors may refuse a partner of another version, and layouts may differ",
    "contract_version": "the phase of a row would be told in two ways",
}
"""What must be the same on both sides, and why."""


def check_pair(prefill: Side, decode: Side, kv: Connector | None = None) -> list[Fault]:
    """Everything that is wrong with the two; `kv` adds what the connector itself has to say."""
    faults = [*_transfer(prefill, decode), *_roles(prefill), *_roles(decode), *_same(prefill, decode)]
    return faults or [*_connectors_own(prefill, decode, kv)]


def own_faults(side: Side) -> list[Fault]:
    """What is wrong with a side whoever the other will be."""
    return [*_configured(side, "another engine"), *_named(side, "the other side has"), *_roles(side)]


def _transfer(prefill: Side, decode: Side) -> Iterator[Fault]:
    if prefill.whole and decode.whole:
        yield from _configured(prefill, decode.name)
        yield from _configured(decode, prefill.name)
    if prefill.kv and decode.kv:
        yield from _buffers(prefill, prefill.kv, decode, decode.kv)
        yield from _named(prefill, f"{decode.name} has: {decode.has('connector')!r}")
        yield from _named(decode, f"{prefill.name} has: {prefill.has('connector')!r}")
    ours, theirs = prefill.has("connector"), decode.has("connector")
    if ours != theirs and None not in (ours, theirs):
        yield decode.fault(
            "pair.connector",
            KV,
            f"kv_connector differs: {prefill.name} has {ours!r}, {decode.name} has {theirs!r}",
            "name the same connector on both: KV goes from one engine's to the other's",
        )


def _configured(side: Side, other: str) -> Iterator[Fault]:
    if not side.kv:
        yield side.fault(
            "pair.kv_transfer_config",
            KV,
            f"{side.name} has no {KV}, and is one side of a split with {other}",
            "give both a kv_transfer_config, or write pd: on the thinker and let duet topology expand do it",
        )


def _named(side: Side, other: str) -> Iterator[Fault]:
    if side.kv and side.has("connector") is None:
        yield side.fault(
            "pair.connector",
            KV,
            f"the kv_transfer_config of {side.name} names no kv_connector",
            f"name the one that {other}",
        )


def _buffers(prefill: Side, ours: Mapping[str, Any], decode: Side, theirs: Mapping[str, Any]) -> Iterator[Fault]:
    for name in ("kv_buffer_device", "kv_buffer_size"):
        a, b = ours.get(name), theirs.get(name)
        if a is not None and b is not None and a != b:
            yield decode.fault(
                f"pair.{name}",
                KV,
                f"{name} differs: {prefill.name} has {a!r}, {decode.name} has {b!r}",
                "set the same on both, or leave it out on one",
            )


def _roles(side: Side) -> Iterator[Fault]:
    expected = KV_ROLES[side.leg]
    role = (side.kv or {}).get("kv_role")
    if side.kv and role not in expected:
        yield side.fault(
            "pair.kv_role",
            KV,
            f"{side.name} has kv_role {role!r}; expected {' or '.join(expected)}",
            f"set kv_role: {expected[0]}: {'prefill produces' if side.leg is Role.PREFILL else 'decode consumes'} KV",
        )
    told = side.facts.get("role")
    if not side.whole and told in set(Role) and not Role(told).serves(side.leg):
        yield side.fault(
            "pair.role",
            "role",
            f"{side.name} says that it was started for {told}; expected {side.leg} or both",
            f"list it as {told}, or start it with --role {side.leg}",
        )


def _same(prefill: Side, decode: Side) -> Iterator[Fault]:
    for name, why in SAME.items():
        ours, theirs = prefill.has(name), decode.has(name)
        if ours != theirs and _comparable(prefill, decode, name):
            yield decode.fault(
                f"pair.{name}",
                name,
                f"{name} differs: {prefill.name} has {_text(ours)}, {decode.name} has {_text(theirs)}",
                f"set the same on both: {why}",
            )


def _comparable(prefill: Side, decode: Side, name: str) -> bool:
    """Whether both are known. Two stages of a file always are: what neither sets, both have by default."""
    return (prefill.whole and decode.whole) or None not in (prefill.has(name), decode.has(name))


def _text(value: object) -> str:
    return "the engine's default" if value is None else repr(value)


def _connectors_own(prefill: Side, decode: Side, kv: Connector | None) -> Iterator[Fault]:
    """What a connector compares beside: its settings. The rest it would only say again."""
    if kv is None:
        return
    facts = [
        EngineFacts(Engine(side.name, "", side.leg), settings=(side.kv or {}).get("kv_connector_extra_config") or {})
        for side in (prefill, decode)
    ]
    for sentence in kv.check(*facts):
        yield decode.fault("pair.connector_settings", KV, sentence, "set the same on both")
