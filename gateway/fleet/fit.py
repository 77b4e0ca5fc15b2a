"""Whether an engine fits those that are there: pure, over what each says it is at `/duet/identity`.

Prefill and decode exchange KV blocks as bytes: nothing in a block says how it was cut, so two engines that cut it
differently give wrong answers rather than errors. The rules are a deploy file's (`common.topology.check_pair`), asked
of engines that run. A field that either side does not tell is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from common.engine import Engine, Role
from common.topology import Fault, Side, check_pair

Identity = Mapping[str, Any]
Known = Mapping[str, tuple[Engine, Identity]]
"""Engine -> what it is, and what it says of itself."""

LEGS = (Role.PREFILL, Role.DECODE)


def misfit(engine: Engine, identity: Identity, others: Known, *, stranger: bool = False) -> str | None:
    """What speaks against the newcomer beside the `others`, naming both sides, both values and the remedy; None if
    nothing does.

    Engines of several models may stand behind one gateway, and only those of one model are compared. A `stranger` is
    one that nobody named: it must be of a model that an engine on the other side of a split serves, if there are any.
    """
    stage, asked = identity.get("stage"), "thinker" if engine.role.thinks else engine.role.value
    if stage is not None and stage != asked:
        return f"stage: it says that it is a {stage!r}; asked for was a {asked!r}"
    told = identity.get("role")
    if told is not None and told not in (engine.role.value, Role.BOTH.value):
        return f"role: it says that it is {told!r}; asked for was {engine.role.value!r}"
    if not engine.role.thinks:
        return None
    thinkers = {id_: other for id_, other in others.items() if other[0].role.thinks}
    for _, (other, its) in sorted(thinkers.items()):
        same = identity.get("model") == its.get("model")
        for fault in _faults(engine, identity, other, its) if same else ():
            return f"{fault.what}; {fault.do}"
    return _strange(engine, identity, thinkers) if stranger else None


def contradiction(declared: Identity, told: Identity, *, by: str) -> str | None:
    """Where what was declared of an engine is not what is known of it `by` somebody; None if nowhere."""
    for name, value in declared.items():
        if told.get(name) is not None and told[name] != value:
            return f"{name}: declared as {value!r}, but {by} it is {told[name]!r}"
    return None


def _faults(engine: Engine, identity: Identity, other: Engine, its: Identity) -> Iterator[Fault]:
    """Of each way in which the two may work together; two that share a leg stand in for each other."""
    pairs = [(leg, next(x for x in LEGS if x is not leg)) for leg in LEGS]
    roles = [(mine, yours) for mine, yours in pairs if engine.role.serves(mine) and other.role.serves(yours)]
    if not roles:
        ours, theirs = (_alike(Side.of_identity(e, e.role, i)) for e, i in ((engine, identity), (other, its)))
        yield from check_pair(replace(theirs, leg=Role.PREFILL), replace(ours, leg=Role.DECODE))
    for mine, yours in roles:
        ours, theirs = Side.of_identity(engine, mine, identity), Side.of_identity(other, yours, its)
        yield from check_pair(ours, theirs) if mine is Role.PREFILL else check_pair(theirs, ours)


def _alike(side: Side) -> Side:
    """Without its role, which is the same on both sides of two that stand in for each other."""
    return replace(side, facts={name: value for name, value in side.facts.items() if name != "role"})


def _strange(engine: Engine, identity: Identity, thinkers: Known) -> str | None:
    model = identity.get("model")
    partners = {
        id_: its.get("model")
        for id_, (other, its) in sorted(thinkers.items())
        if any(engine.role.serves(mine) and other.role.serves(yours) for mine, yours in (LEGS, LEGS[::-1]))
    }
    if model is None or not partners or None in partners.values() or model in partners.values():
        return None
    id_, other = next(iter(partners.items()))
    return (
        f"model differs: {engine.role.value} {engine.id} has {model!r}, and of its partners {id_} has {other!r}; serve "
        "the same, or name engines of a further model in the gateway's settings"
    )
