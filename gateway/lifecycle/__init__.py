"""The life of a request: states, events, and the one table that says which follows which.

`states.py` names them, `table.py` is the table and knows nothing else, `record.py` is what is kept of a life.
"""

from gateway.lifecycle.record import Record
from gateway.lifecycle.states import LIVE, TERMINAL, Effect, Event, State
from gateway.lifecycle.table import TABLE, step

__all__ = ["LIVE", "TABLE", "TERMINAL", "Effect", "Event", "Record", "State", "step"]
