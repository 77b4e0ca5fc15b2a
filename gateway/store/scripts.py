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


def _load(name: str, *before: str) -> Script:
    """`before` are files with what it calls: a script is one text, and cannot ask for another."""
    folder = files("gateway.store").joinpath("lua")
    text = "".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in (*before, name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


ADMIT = _load("admit", "event")
TRANSITION = _load("transition", "event")
CLAIM = _load("claim")
HEARTBEAT = _load("heartbeat")
OVERDUE = _load("overdue")
FORGET = _load("forget")
ENTER = _load("enter")
COUNT = _load("count")
RESTORE = _load("restore")
ALL = (ADMIT, TRANSITION, CLAIM, HEARTBEAT, OVERDUE, FORGET, ENTER, COUNT, RESTORE)
