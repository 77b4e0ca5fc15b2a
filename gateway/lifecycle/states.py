"""The words of the lifecycle. Names are stable: they are what Redis and the admin endpoints show."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    ACCEPTED = "accepted"
    """Admitted and recorded, or between two attempts: no engine works on it."""
    PREFILLING = "prefilling"
    """The prompt is with a prefill engine."""
    PREFILLED = "prefilled"
    """KV waits at the prefill engine; nobody has fetched it yet. It costs blocks until decode reads it."""
    DECODING = "decoding"
    """A decode engine has the request."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The client left, or somebody asked for it."""
    EXPIRED = "expired"
    """Its gateway died; another replica closed it."""


LIVE = frozenset({State.ACCEPTED, State.PREFILLING, State.PREFILLED, State.DECODING})
TERMINAL = frozenset(State) - LIVE


class Speech(StrEnum):
    """The spoken side of an answer, beside its state."""

    OFF = "off"
    """Nobody asked for sound."""
    WAITING = "waiting"
    """Asked for, and nothing of it has been heard yet."""
    SPEAKING = "speaking"
    DONE = "done"
    FAILED = "failed"
    """It ended before its end, by itself or with its request."""


class Event(StrEnum):
    PREFILL_SENT = "prefill_sent"
    PREFILL_DONE = "prefill_done"
    """Prefill's reply is in, and its handoff was found valid."""
    DECODE_SENT = "decode_sent"
    RETRIED = "retried"
    """The attempt failed before the client had a byte, and another begins, with other ids and maybe other engines."""
    COMPLETED = "completed"
    """Decode's reply ended as the protocol says it should."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SPEECH_ASKED = "speech_asked"
    """A Talker and a Code2Wav have a request that was decoding from its start. Of others `decode_sent` says so."""
    SPEECH_STARTED = "speech_started"
    """The first sound of the answer is here."""
    SPEECH_RESUMED = "speech_resumed"
    """A Talker or a Code2Wav was lost, and another goes on from the sample that was reached."""
    SPEECH_DONE = "speech_done"
    SPEECH_FAILED = "speech_failed"
    """No sound follows. The text goes on to its own end."""


SPEECH_EVENTS = frozenset(
    {Event.SPEECH_ASKED, Event.SPEECH_STARTED, Event.SPEECH_RESUMED, Event.SPEECH_DONE, Event.SPEECH_FAILED}
)


class Effect(StrEnum):
    """What whoever runs the request must do after a transition."""

    FREE_PREFILL = "free_prefill"
    """Take the request out of the prefill engine's in-flight count."""
    FREE_DECODE = "free_decode"
    """Take the request out of the decode engine's in-flight count."""
    CLOSE_LEGS = "close_legs"
    """Close whatever engine calls are open."""
    ABANDON_HANDOFF = "abandon_handoff"
    """KV may wait at prefill that nobody will fetch. Unless decode had taken it: count it, and release it where the
    connector can."""
