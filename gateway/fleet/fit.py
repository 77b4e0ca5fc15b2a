"""Whether an engine fits those that are there: pure, over what each says it is at `/duet/identity`.

Prefill and decode exchange KV blocks as bytes: nothing in a block says how it was cut, so two engines that cut it
differently give wrong answers rather than errors. A field that either side does not tell is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.engine import Role

ALIKE = ("revision", "connector", "block_size", "kv_cache_dtype", "vllm_version", "contract_version")
"""What the prefill and decode engines of one model must have in common."""

Identity = Mapping[str, Any]


def misfit(role: Role, identity: Identity, others: Mapping[str, tuple[Role, Identity]]) -> str | None:
    """What speaks against the newcomer beside the `others` (engine -> role and identity), naming both sides and both
    values; None if nothing does."""
    if (told := identity.get("role")) is not None and not _may_be(role, str(told)):
        return f"role: it says that it is {told!r}; asked for was {role.value!r}"
    for id_, (other_role, other) in sorted(others.items()):
        if not (role.thinks and other_role.thinks and identity.get("model") == other.get("model")):
            continue
        for name in ALIKE:
            mine, its = identity.get(name), other.get(name)
            if mine is not None and its is not None and mine != its:
                return f"{name}: it has {mine!r}, {other_role.value} engine {id_} has {its!r}; expected the same"
    return None


def contradiction(declared: Identity, told: Identity, *, by: str) -> str | None:
    """Where what was declared of an engine is not what is known of it `by` somebody; None if nowhere."""
    for name, value in declared.items():
        if name in told and told[name] != value:
            return f"{name}: declared as {value!r}, but {by} it is {told[name]!r}"
    return None


def _may_be(role: Role, told: str) -> bool:
    return told in (role.value, Role.BOTH.value)
