"""Scorers: each gives every candidate a score in [0, 1], higher is better. The picker adds them up by weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.routing.candidate import Candidate, Wish

Scorer = Callable[[Sequence[Candidate], Wish], Sequence[float]]


def least_loaded(candidates: Sequence[Candidate], wish: Wish) -> Sequence[float]:
    """1 for the emptiest engine, 0 for the fullest, linear between; all 1 where they are equal."""
    loads = [c.load for c in candidates]
    low, high = min(loads), max(loads)
    return [1.0 if high == low else (high - load) / (high - low) for load in loads]
