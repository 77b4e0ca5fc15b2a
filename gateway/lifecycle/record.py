"""What is kept of a request's life: enough for any replica to show it, cancel it or take it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.lifecycle.states import LIVE, Speech, State


@dataclass(frozen=True, slots=True)
class Record:
    """One request as the store has it. Times are epoch seconds; engines are `Engine.id`s."""

    id: str
    state: State
    version: int
    """1 on admission; each transition adds 1."""
    attempt: int
    model: str
    endpoint: str
    """The path the client called."""
    stream: bool
    connector: str
    owner: str
    """The replica that runs it."""
    decode: str
    created_at: float
    updated_at: float
    prefill: str | None = None
    """None where the request runs unsplit."""
    unsplit: str | None = None
    """Why the request runs unsplit; None where it is split."""
    client_request_id: str | None = None
    """What the client sent as `x-request-id`: shown, never used as a key."""
    handoff: Mapping[str, Any] | None = None
    """KV routing metadata as JSON values, without prompt token ids."""
    handoff_expires_at: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    """When each state was entered, and `first_byte`."""
    usage: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """`{status, type, code, message}` of a failed request."""

    speech: Speech = Speech.OFF
    talker: str | None = None
    code2wav: str | None = None
    conditioning: Sequence[str] | None = None
    """References to what the Thinker's engines tell the Talker of this request."""

    @property
    def engines(self) -> list[str]:
        """All that it has a place on, or had."""
        return [e for e in (self.prefill, self.decode, self.talker, self.code2wav) if e is not None]

    @property
    def live(self) -> bool:
        return self.state in LIVE
