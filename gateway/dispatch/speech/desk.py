"""Where requests for speech are taken in: whether one can be spoken at all, and each attempt's beginning."""

from __future__ import annotations

from common.engine import Engine, Role
from common.errors import NoRoutableEngine
from common.ids import leg_id
from gateway.dispatch.journal import Journal
from gateway.dispatch.route import Route
from gateway.dispatch.sink import Sink
from gateway.dispatch.speech.ask import Ask
from gateway.dispatch.speech.errors import AudioUnsupported
from gateway.dispatch.speech.memory import recall
from gateway.dispatch.speech.parts import SpeechParts
from gateway.dispatch.speech.speaking import Speaking
from gateway.dispatch.speech.speech import Speech
from gateway.dispatch.speech.staff import ROLES
from gateway.dispatch.speech.streamed import Streamed
from gateway.dispatch.speech.whole import Whole
from gateway.routing import Picker, Wish
from gateway.wire import ClientRequest

STAGE_OF_THINKERS = "thinker"


class Desk:
    def __init__(self, parts: SpeechParts) -> None:
        self._parts = parts
        self._looking = Picker()
        """Whose turn it is among equals is no matter of who only looks."""

    async def recalled(self, request: ClientRequest) -> ClientRequest:
        """With what earlier answers said that messages refer to by their audio. Raises BadRequest, AudioNotFound,
        PayloadTooLarge, StoreUnavailable."""
        return await recall(self._parts.store, request, self._parts.recalled_most)

    def ask(self, request: ClientRequest) -> Ask | None:
        """None where no sound is asked for, and for a model that nobody knows: routing says so.

        Raises BadRequest for what cannot be spoken, NoRoutableEngine where nobody can do it now.
        """
        fleet = self._parts.fleet
        if not request.speaks or request.model not in fleet.models():
            return None
        talkers = [m for m in fleet.members.values() if m.engine.role is Role.TALKER]
        speakers = fleet.speakers(request.model)
        if not speakers and all(m.speakers for m in talkers):
            raise AudioUnsupported(
                f'modalities has audio, and no Talker speaks for model {request.model!r}; expected ["text"]',
                param="modalities",
            )
        if not speakers:
            raise NoRoutableEngine("no Talker has told its voices yet")
        ask = Ask.of(request, speakers)
        for role in ROLES:
            self._looking.pick(fleet.candidates(), Wish(role, request.model, voice=ask.speaker))
        return ask

    def speaking(self, request: ClientRequest, ask: Ask, journal: Journal, sink: Sink, route: Route) -> Speaking:
        """One attempt's, not entered yet."""
        id_, attempt = journal.record.id, route.attempt
        name = leg_id(id_, attempt, "speech")
        speech = Speech(self._parts, ask, journal, request.model, name, conditioning(id_, route))
        kind = Streamed if request.stream else Whole
        return kind(self._parts, request, ask, journal, sink, speech)


def conditioning(request_id: str, route: Route) -> tuple[str, ...]:
    """References to what the route's Thinkers tell, prefill's first. They exist before anything is told."""
    legs: list[tuple[str, Engine]] = [] if route.prefill is None else [("prefill", route.prefill)]
    legs.append(("decode", route.decode))
    return tuple(_reference(engine, leg_id(request_id, route.attempt, leg)) for leg, engine in legs)


def _reference(engine: Engine, stream: str) -> str:
    from common.channel.reference import Key, Reference  # needs pyzmq, of duet[audio]: only where there is speech

    if engine.channel is None:
        raise NoRoutableEngine(f"engine {engine.id} tells no Talker what it computes")
    return str(Reference.within(engine.channel, Key(stream, STAGE_OF_THINKERS)))
