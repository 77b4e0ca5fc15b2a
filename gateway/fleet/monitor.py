"""Asks one engine how it is: `/health` every time, `/v1/models` and `/duet/identity` when it comes up and now and then
after, and what the connector must know of a prefill engine every time, so that one that was restarted is known by its
new identity. One that answers and does not fit the others is refused: it is not up, and asked again.

One good check takes an engine in at first, `failures` bad ones in a row take it out, and then it takes RETURNS good
ones in a row to come back: an engine does not flap on one lost packet, nor on one good answer among bad ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from common.clock import Clock
from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import EngineBroken, EngineError
from gateway.fleet.identity import IDENTITY, channel_of, kv_engine_of, speakers_of, told_by
from gateway.fleet.member import Member
from gateway.transport.port import EngineClient, Reply

log = logging.getLogger(__name__)

MODELS_EVERY = 30
"""Checks between two looks at `/v1/models` and `/duet/identity` of an engine that is up."""

RETURNS = 2
"""Good checks in a row that take an engine in that was out."""
SOONER = 4
"""How much sooner than else the checks of an engine that is out follow each other: it is to be of use as soon as it is
ready."""


class Monitor:
    def __init__(
        self,
        member: Member,
        client: EngineClient,
        clock: Clock,
        connector: Connector,
        *,
        interval: float,
        timeout: float,
        failures: int,
        speech: bool,
        misfit: Callable[[Member], str | None],
        on_refused: Callable[[str], None],
    ) -> None:
        """`misfit` says why the member does not fit the others as they are now, None if it does. `on_refused` is told
        each time that one is refused, not each time that it is found to be so still."""
        self.member = member
        self._client = client
        self._clock = clock
        self._connector = connector
        self._given = member.engine.facts
        self._interval = interval
        self._timeout = timeout
        self._failures = failures
        self._speech = speech
        self._misfit = misfit
        self._on_refused = on_refused
        self._judged: Mapping[str, Any] | None = None
        """What the member was when it was found to fit."""
        self._unheard: str | None = None
        """Why no Talker can hear it, though it tells where."""
        self._checks = 0
        self._wanted = self._asked = 0
        """How often somebody wanted the engine to be asked what it is, and how many of those times that was done."""

    async def run(self) -> None:
        """Checks for ever; ends by being cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self.pause)

    def hear_of_speech(self) -> None:
        """From the next check on the engine is asked what speech must know of it."""
        self._speech = True
        self.look_anew()

    def look_anew(self) -> None:
        """From the next check on the engine is asked what it is: it may be another by now."""
        self._wanted += 1

    @property
    def pause(self) -> float:
        """Seconds until the next check."""
        member = self.member
        return self._interval if member.up or member.refused else self._interval / SOONER

    async def check(self) -> None:
        """One check. Never raises for what the engine does."""
        self.conclude(await self.ask())

    def conclude(self, fault: str | None) -> None:
        """What follows of what `ask` found."""
        if fault is not None:
            self._failed(fault)
        elif (why := self._unfit()) is not None:
            self._refuse(why)
        else:
            self._passed()
        self._checks += 1
        self.member.checked_at = self._clock.now()

    async def ask(self) -> str | None:
        """What is wrong with how the engine answers; None if nothing is."""
        member, wanted = self.member, self._wanted
        try:
            _expect_ok(member, "/health", await self._get("/health"))
            if not member.up or self._asked < wanted or self._checks % MODELS_EVERY == 0:
                member.models = _models(member, await self._get("/v1/models"))
                self._take(await self._get(IDENTITY))
                self._asked = wanted
            await self._learn()
        except EngineError as e:
            return e.message
        except Exception as e:  # an answer that is odd as nobody foresaw is that engine's, and ends no check
            return self._unforeseen("answered as nobody foresaw", e)
        return None

    async def _get(self, path: str) -> Reply:
        return await self._client.get(self.member.engine, path, timeout=self._timeout)

    def _take(self, reply: Reply) -> None:
        """What it is. A stock engine tells nothing, and tells no Talker; a Talker must have an identity."""
        member = self.member
        member.identity = told_by(reply)
        kv_engine = kv_engine_of(member.identity)
        if kv_engine != member.engine.kv_engine:
            member.engine = replace(member.engine, kv_engine=kv_engine)
        if not self._speech or member.engine.role is Role.CODE2WAV:
            return
        speakers = speakers_of(member.identity)
        if member.engine.role is Role.TALKER and not speakers:
            raise EngineBroken(
                f"Talker {member.engine.id} tells no speakers at {IDENTITY} (status {reply.status}); expected some",
                engine=member.engine.id,
            )
        member.speakers = speakers
        if member.engine.role.thinks:
            self._hear()

    def _hear(self) -> None:
        """Where it tells Talkers what it computes. One that says so wrongly is taken for one that does not: it has no
        part in speech, and serves text."""
        member, why = self.member, None
        try:
            channel = channel_of(member.identity)
        except ValueError as e:
            channel, why = None, str(e)
        if why is not None and why != self._unheard:
            engine = member.engine
            log.warning("%s engine %s is heard by no Talker, and serves text: %s", engine.role.value, engine.id, why)
        self._unheard = why
        if channel != member.engine.channel:
            member.engine = replace(member.engine, channel=channel)

    async def _learn(self) -> None:
        engine = self.member.engine
        lookup = self._connector.lookup(engine) if engine.role.serves(Role.PREFILL) else None
        if lookup is None:
            return
        asked = Engine(engine.id, lookup.base, engine.role)
        reply = await self._client.get(asked, lookup.path, timeout=self._timeout)
        _expect_ok(self.member, lookup.path, reply)
        learnt = {**self._given, **self._connector.learn(engine, reply.body)}
        if learnt != engine.facts:
            self.member.engine = replace(engine, facts=learnt)
            self.member.lose()
            log.info("prefill engine %s is now known as %s", engine.id, learnt)

    def _unfit(self) -> str | None:
        """Asked where it comes up, and where it is not what it was."""
        member = self.member
        if member.up and member.known == self._judged:
            return None
        try:
            why = self._misfit(member)
        except Exception as e:
            why = self._unforeseen("tells of itself what cannot be held against the others", e)
        self._judged = member.known if why is None else None
        return why

    def _unforeseen(self, what: str, error: Exception) -> str:
        fault = f"engine {self.member.engine.id} {what}: {type(error).__name__}: {error!s:.200}"
        if self.member.fault != fault:
            log.error("%s", fault, exc_info=error)
        return fault

    def _refuse(self, why: str) -> None:
        member = self.member
        if member.up:
            member.up = False
            member.lose()
        if not member.refused or member.fault != why:
            log.warning("%s engine %s is refused: %s", member.engine.role.value, member.engine.id, why)
            self._on_refused(member.engine.id)
        member.refused, member.fault = True, why
        member.failures = member.successes = 0

    def _passed(self) -> None:
        member = self.member
        member.failures, member.successes = 0, member.successes + 1
        if member.checked_at is not None and not member.up and member.successes < RETURNS:
            return
        if not member.up:
            member.breaker.came_back(self._clock.monotonic())
            names = ", ".join(member.models)
            log.info("%s engine %s is up and serves %s", member.engine.role.value, member.engine.id, names)
        member.up, member.refused, member.fault = True, False, None

    def _failed(self, fault: str) -> None:
        member = self.member
        member.failures, member.successes = member.failures + 1, 0
        if member.up and member.failures >= self._failures:
            member.up = False
            member.lose()
            log.warning("%s engine %s is out: %s", member.engine.role.value, member.engine.id, fault)
        if not member.up:
            member.refused, member.fault = False, fault


def _expect_ok(member: Member, path: str, reply: Reply) -> None:
    if reply.status != 200:
        raise EngineBroken(
            f"engine {member.engine.id} answered {path} with {reply.status}; expected 200", engine=member.engine.id
        )


def _models(member: Member, reply: Reply) -> Mapping[str, int | None]:
    """Served names and their longest context. Raises EngineBroken if there are none or the body is no model list."""
    _expect_ok(member, "/v1/models", reply)
    try:
        listed = msgspec.json.decode(reply.body, type=_ModelList)
    except msgspec.DecodeError as e:
        raise EngineBroken(
            f"engine {member.engine.id} answered /v1/models with no model list: {e}", engine=member.engine.id
        ) from None
    if not listed.data:
        raise EngineBroken(f"engine {member.engine.id} serves no model", engine=member.engine.id)
    return {m.id: m.max_model_len for m in listed.data}


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]
