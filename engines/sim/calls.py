"""What an engine was asked, for tests to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Leg = Literal["prefill", "decode", "unsplit"]
Ending = Literal["done", "client left", "broke off"]


@dataclass(slots=True)
class Call:
    """One request for an answer, as it came. `body` is the JSON, None where it is none; `at` and `ended_at` are Unix
    seconds. `end` is None while it runs, and `done` for a refusal too: `status` tells them apart."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float = field(default_factory=time.time)
    status: int | None = None
    tokens: int = 0
    """How many were made for it."""
    end: Ending | None = None
    ended_at: float | None = None

    @property
    def leg(self) -> Leg:
        return leg_of(self.body)

    def close(self, end: Ending) -> None:
        """The first word counts: a connection that broke off also loses its client."""
        if self.end is None:
            self.end, self.ended_at = end, time.time()


def leg_of(body: Any) -> Leg:
    """Which leg of a split request a body is, by what it asks of the connector."""
    params = body.get("kv_transfer_params") if isinstance(body, dict) else None
    if isinstance(params, dict) and params.get("do_remote_decode"):
        return "prefill"
    if isinstance(params, dict) and params.get("do_remote_prefill"):
        return "decode"
    return "unsplit"
