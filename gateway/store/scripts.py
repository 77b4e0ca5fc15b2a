"""The Lua scripts: loaded once, called by their hash, loaded again by whoever finds them gone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """`sha` is what EVALSHA takes: Redis computes the same hash of the same text."""

    name: str
    text: str
    sha: str


def _load(name: str) -> Script:
    text = files("gateway.store").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


ADMIT = _load("admit")
TRANSITION = _load("transition")
CLAIM = _load("claim")
HEARTBEAT = _load("heartbeat")
OVERDUE = _load("overdue")
FORGET = _load("forget")
ENTER = _load("enter")
COUNT = _load("count")
RESTORE = _load("restore")
ALL = (ADMIT, TRANSITION, CLAIM, HEARTBEAT, OVERDUE, FORGET, ENTER, COUNT, RESTORE)
