"""The life of a request: states, events, and the one table that says which follows which.

`states.py` names them, `table.py` is the table and knows nothing else, `speech.py` the same for the spoken side,
`record.py` is what is kept of a life.
"""

from gateway.lifecycle.record import Record
from gateway.lifecycle.speech import SPEECH, speech_step
from gateway.lifecycle.states import LIVE, SPEECH_EVENTS, TERMINAL, Effect, Event, Speech, State
from gateway.lifecycle.table import TABLE, step

__all__ = [
    "LIVE",
    "SPEECH",
    "SPEECH_EVENTS",
    "TABLE",
    "TERMINAL",
    "Effect",
    "Event",
    "Record",
    "Speech",
    "State",
    "speech_step",
    "step",
]
