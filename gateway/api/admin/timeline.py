"""One request's life as spans of time, for a waterfall: read off its events, which any replica can.

queue      admission, or a retry, to the first call of an engine
prefill    prefill sent to its reply
handoff    prefill's reply to decode's first bytes, where the answer is streamed; else to decode sent
decode     from there to the end
talker     decode sent to the last sound
code2wav   the first sound to the last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.lifecycle import LIVE, Event, Record, Speech
from gateway.store.codec import ENGINES
from gateway.store.port import EventRow

OVER = frozenset({Event.COMPLETED, Event.FAILED, Event.CANCELLED, Event.EXPIRED, Event.RETRIED})
SOUND_OVER = frozenset({Event.SPEECH_DONE, Event.SPEECH_FAILED})
ENGINE_OF = {"prefill": "prefill", "handoff": "prefill", "decode": "decode", "talker": "talker", "code2wav": "code2wav"}


@dataclass(slots=True)
class Span:
    """Epoch seconds; `end` is None while it lasts. `engine` is None for what none of them does."""

    name: str
    attempt: int
    start: float
    end: float | None = None
    engine: str | None = None

    def view(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "attempt": self.attempt,
            "start": self.start,
            "end": self.end,
            "engine": self.engine,
        }


def spans(record: Record, events: Sequence[EventRow]) -> list[Span]:
    """In the order in which they began."""
    found: list[Span] = []
    attempt = 1
    engines: dict[int, dict[str, str]] = {}
    for row in events:
        event = row.event
        if event in OVER:
            _close(found, row.at)
        if event == Event.RETRIED:
            attempt += 1
        engines.setdefault(attempt, {}).update(row.engines)
        if event in ("admitted", Event.RETRIED):
            found.append(Span("queue", attempt, row.at))
        elif event == Event.PREFILL_SENT:
            _close(found, row.at, "queue")
            found.append(Span("prefill", attempt, row.at))
        elif event == Event.PREFILL_DONE:
            _close(found, row.at, "prefill")
            if not any(s.name == "decode" and s.attempt == attempt for s in found):
                found.append(Span("handoff", attempt, row.at))
        elif event == Event.DECODE_SENT:
            _close(found, row.at, "queue", "handoff")
            found.append(Span("decode", attempt, row.at))
            if record.speech is not Speech.OFF:
                found.append(Span("talker", attempt, row.at))
        elif event == Event.SPEECH_STARTED:
            found.append(Span("code2wav", attempt, row.at))
        elif event in SOUND_OVER:
            _close(found, row.at, "talker", "code2wav")
    _split_at_first_byte(record, found)
    last = {name: id_ for name in ENGINES if (id_ := getattr(record, name)) is not None}
    engines[record.attempt] = last
    for span in found:
        span.engine = engines.get(span.attempt, {}).get(ENGINE_OF.get(span.name, ""))
    return sorted(found, key=lambda s: s.start)


def _close(found: list[Span], at: float, *names: str) -> None:
    for span in found:
        if span.end is None and (not names or span.name in names):
            span.end = at


def _split_at_first_byte(record: Record, found: list[Span]) -> None:
    """Between decode sent and its first bytes the KV is on its way. A whole answer's first byte tells nothing of that,
    and neither does one whose request still runs."""
    first = record.timings.get("first_byte")
    if first is None or not record.stream or record.state in LIVE:
        return
    handoff = next((s for s in reversed(found) if s.name == "handoff"), None)
    decode = next((s for s in reversed(found) if s.name == "decode"), None)
    if handoff is not None and decode is not None and handoff.attempt == decode.attempt and first >= decode.start:
        handoff.end = decode.start = first
