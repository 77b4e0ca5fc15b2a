"""The lifecycle as data: `(state, event) -> (state, effects)`. A missing pair is an IllegalTransition.

Split, sequential:  accepted, prefill_sent, prefill_done, decode_sent, completed.
Split, concurrent:  decode_sent comes before prefill_done.
Unsplit:            accepted, decode_sent, completed.

An attempt that fails before the client has a byte may be followed by another: `retried` leads back to accepted.
Speech runs beside decode and moves no state: what it does itself is `speech.py`'s table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from common.errors import IllegalTransition
from gateway.lifecycle.states import SPEECH_EVENTS, Effect, Event, State

Row = tuple[State, tuple[Effect, ...]]

_FREE = (Effect.FREE_PREFILL, Effect.FREE_DECODE)
_ENDS = {Event.FAILED: State.FAILED, Event.CANCELLED: State.CANCELLED, Event.EXPIRED: State.EXPIRED}
_ON_END = {
    State.ACCEPTED: _FREE,
    State.PREFILLING: (Effect.CLOSE_LEGS, *_FREE),
    State.PREFILLED: (Effect.CLOSE_LEGS, Effect.ABANDON_HANDOFF, *_FREE),
    State.DECODING: (Effect.CLOSE_LEGS, Effect.ABANDON_HANDOFF, *_FREE),
}

_BUSY = (State.PREFILLING, State.PREFILLED, State.DECODING)

TABLE: Mapping[tuple[State, Event], Row] = MappingProxyType(
    {
        (State.ACCEPTED, Event.PREFILL_SENT): (State.PREFILLING, ()),
        (State.ACCEPTED, Event.DECODE_SENT): (State.DECODING, ()),
        (State.PREFILLING, Event.PREFILL_DONE): (State.PREFILLED, (Effect.FREE_PREFILL,)),
        (State.PREFILLING, Event.DECODE_SENT): (State.DECODING, ()),
        (State.PREFILLED, Event.DECODE_SENT): (State.DECODING, ()),
        (State.DECODING, Event.PREFILL_DONE): (State.DECODING, (Effect.FREE_PREFILL,)),
        (State.DECODING, Event.COMPLETED): (State.FINISHED, _FREE),
        **{(State.DECODING, event): (State.DECODING, ()) for event in Event if event in SPEECH_EVENTS},
        **{(state, Event.RETRIED): (State.ACCEPTED, _ON_END[state]) for state in _BUSY},
        **{(state, event): (end, effects) for state, effects in _ON_END.items() for event, end in _ENDS.items()},
    }
)


def step(state: State, event: Event) -> Row:
    """The state after `event` in `state`, and what must be done then. Raises IllegalTransition."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise IllegalTransition(f"event {event.value} is not possible in state {state.value}") from None
