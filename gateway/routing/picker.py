"""The picker: the best score wins, equals take turns."""

from __future__ import annotations

from collections.abc import Sequence

from common.engine import Role
from common.errors import NoRoutableEngine
from gateway.routing import filters, scorers
from gateway.routing.candidate import Candidate, Wish

FILTERS: tuple[tuple[str, filters.Filter], ...] = (
    ("has this role", filters.role),
    ("is another than the prefill engine", filters.another),
    ("serves this model", filters.model),
    ("has this voice", filters.speaks),
    ("answers its health checks", filters.up),
    ("tells a Talker what it computes", filters.heard),
    ("is not draining", filters.not_draining),
    ("is left that has not failed at this request", filters.untried),
)
PREFERENCES: tuple[filters.Filter, ...] = (filters.trusted,)
"""Filters that hold where they leave somebody: an engine that failed of late is still better than none."""
SCORERS: tuple[tuple[float, scorers.Scorer], ...] = ((1.0, scorers.least_loaded),)

_EQUAL = 1e-9


class Picker:
    """Holds nothing but whose turn it is among equals, for each leg."""

    def __init__(self) -> None:
        self._turns = dict.fromkeys(Role, 0)

    def pick(self, candidates: Sequence[Candidate], wish: Wish) -> Candidate:
        """The engine for one leg. Raises NoRoutableEngine, saying which condition left nobody."""
        left = candidates
        for what, keep in FILTERS:
            kept = [c for c in left if keep(c, wish)]
            if not kept:
                seen = ", ".join(c.engine.id for c in left) or "none"
                raise NoRoutableEngine(
                    f"no {wish.leg.value} engine for model {wish.model!r} {what}; engines looked at: {seen}"
                )
            left = kept
        for keep in PREFERENCES:
            left = [c for c in left if keep(c, wish)] or left
        totals = [0.0] * len(left)
        for weight, score in SCORERS:
            for i, value in enumerate(score(left, wish)):
                totals[i] += weight * value
        best = max(totals)
        equals = [c for c, total in zip(left, totals, strict=True) if best - total < _EQUAL]
        turn = self._turns[wish.leg]
        self._turns[wish.leg] = turn + 1
        return equals[turn % len(equals)]
