"""What routing knows of an engine and of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.engine import Engine, Role


@dataclass(frozen=True, slots=True)
class Candidate:
    """One engine as it stands now. `models` maps each served name to its `max_model_len` in tokens (None where
    the engine does not tell). `load` is how many requests of all replicas are in flight on it. `trusted` is false while
    its breaker keeps requests away. `speakers` are a Talker's voices."""

    engine: Engine
    up: bool
    models: Mapping[str, int | None]
    load: int = 0
    draining: bool = False
    trusted: bool = True
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What one leg of one request needs. `other_than` is an engine's id that will not do: an engine of role `both`
    must not hand KV to itself. `tried` are engines that failed at this request before. `heard` is whether a Talker must
    hear what the engine computes, `voice` one that a Talker must have."""

    leg: Role
    model: str
    other_than: str | None = None
    tried: frozenset[str] = frozenset()
    heard: bool = False
    voice: str | None = None
