"""The Talker and the Code2Wav that one speech has now, their places, and who comes in the place of one that failed."""

from __future__ import annotations

import asyncio
from collections import Counter

from common.engine import Engine, Role
from common.errors import EngineError, NoRoutableEngine
from gateway.dispatch.journal import Journal
from gateway.dispatch.policy import Policy, may_help, may_pass
from gateway.dispatch.speech.parts import SpeechParts
from gateway.routing import Wish
from gateway.store.port import Load

UNREACHED = "channel_producer_lost"
"""What a Code2Wav says that has no answer from where the codes are: the Talker is gone, or no way leads there."""
CODES_GONE = frozenset({"channel_stream_failed", UNREACHED, "channel_error", "codes_invalid"})
"""What a Code2Wav says of codes that cannot be had any more, or are none: another Talker can make them again."""
THINKER_GONE = "thinker_lost"
"""What a Talker says of conditioning that cannot be had any more: no other Talker could have it."""
ROLES = (Role.TALKER, Role.CODE2WAV)


class Staff:
    """`voice` is one that the Talker must have."""

    def __init__(self, parts: SpeechParts, journal: Journal, model: str, voice: str) -> None:
        self._parts = parts
        self._journal = journal
        self._model = model
        self._voice = voice
        self._engines: dict[Role, Engine] = {}
        self._tried: dict[Role, frozenset[str]] = dict.fromkeys(ROLES, frozenset())
        self._failures: Counter[Role] = Counter()
        self._asked_again: set[str] = set()
        self.denied = False
        """Whether there would have been another engine, and the retry budget was used up."""

    def __bool__(self) -> bool:
        return bool(self._engines)

    def __getitem__(self, role: Role) -> Engine:
        return self._engines[role]

    @property
    def fields(self) -> dict[str, str]:
        """Their ids, by role."""
        return {role.value: engine.id for role, engine in self._engines.items()}

    def take(self) -> None:
        """The first of each role. Raises NoRoutableEngine."""
        for role, engine in [(role, self._pick(role, frozenset())) for role in ROLES]:
            self._enter(role, engine)

    def leave(self) -> None:
        """Gives their places back. Safe to call again."""
        for role in list(self._engines):
            self._leave(role)

    def succeeded(self) -> None:
        for engine in self._engines.values():
            self._parts.fleet.succeeded(engine.id)

    def asks_again(self, role: Role) -> bool:
        """Whether the same engine may be asked once more before it counts as failed: once, and where it is there."""
        engine = self._engines[role].id
        if engine in self._asked_again or self._parts.policy is Policy.FAIL or not self._takes_requests(engine):
            return False
        self._asked_again.add(engine)
        return True

    def has_another(self, role: Role) -> bool:
        """Whether there is one that was not tried."""
        try:
            self._pick(role, self._tried[role] | {self._engines[role].id})
        except NoRoutableEngine:
            return False
        return True

    def lost(self, role: Role) -> asyncio.Event:
        """Is set once its engine is found to be out, from now on."""
        return self._parts.fleet.lost(self._engines[role].id)

    def replace(self, role: Role, error: EngineError, *, begun: bool) -> Engine | None:
        """Another engine in the place of the one that failed; None if there is to be none, and its place is free.

        A speech that has `begun` is not held to the retry budget: what others took upon themselves of it is no new
        work, it cannot be asked for again from outside, and an engine that dies leaves many of them at once. Its own
        bound is how often it may change engines.
        """
        failed = self._engines[role].id
        helps = (may_help(error) or error.code in CODES_GONE) and error.code != THINKER_GONE
        if helps:
            self._parts.fleet.failed(failed, error.message)
        self._leave(role)
        self._failures[role] += 1
        self._tried[role] |= {failed}
        if not helps or self._parts.policy is Policy.FAIL or self._failures[role] >= self._parts.attempts:
            return None
        engine = self._another(role, error)
        if engine is None:
            return None
        if not begun and not self._parts.budget.spend(self._parts.clock.monotonic()):
            self.denied = True
            self._parts.metrics.retries_denied.inc()
            return None
        self._enter(role, engine)
        self._parts.metrics.speech_retries.labels(role.value).inc()
        return engine

    def _another(self, role: Role, error: EngineError) -> Engine | None:
        """One that was not tried, or where that may pass one that was."""
        for tried in (self._tried[role], frozenset[str]()) if may_pass(error) else (self._tried[role],):
            try:
                return self._pick(role, tried)
            except NoRoutableEngine:
                continue
        return None

    def _takes_requests(self, engine: str) -> bool:
        return any(c.engine.id == engine and c.up and c.trusted for c in self._parts.fleet.candidates())

    def _pick(self, role: Role, tried: frozenset[str]) -> Engine:
        wish = Wish(role, self._model, tried=tried, voice=self._voice)
        return self._parts.picker.pick(self._parts.fleet.candidates(), wish).engine

    def _enter(self, role: Role, engine: Engine) -> None:
        self._engines[role] = engine
        until = self._parts.clock.now() + self._parts.load_ttl
        self._parts.fleet.enter(engine.id, self._journal.record.id)
        self._journal.enter(Load(engine.id, self._journal.record.id, until))

    def _leave(self, role: Role) -> None:
        self._journal.leave(self._engines.pop(role).id)
