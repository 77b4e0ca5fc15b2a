"""The speech axis as data: `(speech, event) -> speech`. An answer without sound stays `off` whatever happens.

With sound: waiting, speech_started, speech_done, and then the request's own end. A further attempt speaks anew, and a
request that ends badly takes its speech with it; one cannot complete while it speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from common.errors import IllegalTransition
from gateway.lifecycle.states import SPEECH_EVENTS, Event, Speech

_OPEN = (Speech.WAITING, Speech.SPEAKING)
_ENDS = {
    Event.SPEECH_DONE: Speech.DONE,
    **dict.fromkeys((Event.SPEECH_FAILED, Event.FAILED, Event.CANCELLED, Event.EXPIRED), Speech.FAILED),
}

SPEECH: Mapping[tuple[Speech, Event], Speech] = MappingProxyType(
    {
        (Speech.WAITING, Event.SPEECH_ASKED): Speech.WAITING,
        (Speech.WAITING, Event.SPEECH_STARTED): Speech.SPEAKING,
        **{(speech, Event.SPEECH_RESUMED): speech for speech in _OPEN},
        **{(speech, event): end for speech in _OPEN for event, end in _ENDS.items()},
        **{(speech, Event.RETRIED): Speech.WAITING for speech in Speech if speech is not Speech.OFF},
    }
)


def speech_step(speech: Speech, event: Event) -> Speech:
    """What speech is after `event`: itself, where the event is none of its business. Raises IllegalTransition."""
    after = SPEECH.get((speech, event))
    if after is not None:
        return after
    if event in SPEECH_EVENTS or (event is Event.COMPLETED and speech in _OPEN):
        raise IllegalTransition(f"event {event.value} is not possible while speech is {speech.value}")
    return speech
