"""The waits that one request may take, from the settings. There is no limit on the whole of a healthy stream."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.transport.port import Deadlines


@dataclass(frozen=True, slots=True)
class LegDeadlines:
    """Seconds. `decode_stream.headers` bounds the wait until decode takes the request, its `idle` each chunk."""

    prefill: Deadlines
    decode_stream: Deadlines
    decode_unary: Deadlines

    @classmethod
    def of(cls, *, connect: float, prefill: float, first_token: float, idle: float, unary: float) -> LegDeadlines:
        return cls(
            prefill=Deadlines(connect=connect, headers=prefill, idle=idle),
            decode_stream=Deadlines(connect=connect, headers=first_token, idle=idle),
            decode_unary=Deadlines(connect=connect, headers=unary, idle=idle),
        )
