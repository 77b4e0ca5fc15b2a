"""Filters: each keeps the candidates that could take the leg at all, and has a word for why the others cannot."""

from __future__ import annotations

from collections.abc import Callable

from common.engine import Role
from gateway.routing.candidate import Candidate, Wish

Filter = Callable[[Candidate, Wish], bool]


def role(candidate: Candidate, wish: Wish) -> bool:
    return candidate.engine.role.serves(wish.leg)


def model(candidate: Candidate, wish: Wish) -> bool:
    return wish.model in candidate.models


def heard(candidate: Candidate, wish: Wish) -> bool:
    return not wish.heard or candidate.engine.channel is not None


def speaks(candidate: Candidate, wish: Wish) -> bool:
    if wish.voice is None or wish.leg is not Role.TALKER:
        return True
    return wish.voice.lower() in map(str.lower, candidate.speakers)


def up(candidate: Candidate, wish: Wish) -> bool:
    return candidate.up


def not_draining(candidate: Candidate, wish: Wish) -> bool:
    return not candidate.draining


def another(candidate: Candidate, wish: Wish) -> bool:
    return candidate.engine.id != wish.other_than


def trusted(candidate: Candidate, wish: Wish) -> bool:
    return candidate.trusted


def untried(candidate: Candidate, wish: Wish) -> bool:
    return candidate.engine.id not in wish.tried
