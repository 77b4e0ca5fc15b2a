"""The sound of one attempt's answer, in order and each sample once, whatever becomes of a Talker or a Code2Wav.

| lost | what is asked again | why no sample repeats or is missing |
| --- | --- | --- |
| Code2Wav | itself, if it broke off; another, for the same codes | it begins at the sample that was reached |
| Talker | another, for the same conditioning; then Code2Wav | the same seed gives the same codes |

The Thinker's rows stay with its engines until nobody asked for them for a while, so they can be read a second time.
A Code2Wav that breaks off cannot say why; asked again it says so by a status, if it was for want of codes. Lost is also
who is silent for too long (`silence.py`): the Talker, until it has told its last frame; then Code2Wav.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from common.engine import Engine, Role
from common.errors import EngineBroken, EngineError, EngineRefused, EngineTimeout, NoRoutableEngine
from gateway.audio.pcm import SAMPLE_BYTES
from gateway.dispatch.journal import Journal
from gateway.dispatch.policy import Policy, may_help, may_pass
from gateway.dispatch.speech.ask import MAX_FRAMES, Ask
from gateway.dispatch.speech.errors import SpeechFailed, SpeechRefused
from gateway.dispatch.speech.parts import SpeechParts
from gateway.dispatch.speech.silence import Silence
from gateway.dispatch.speech.talk import Talk
from gateway.dispatch.speech.vocode import Codes, SoundShort, vocode
from gateway.lifecycle import Event
from gateway.routing import Wish
from gateway.store.port import Load

log = logging.getLogger(__name__)
T = TypeVar("T")

SAME_FAULT_WITHIN = 0.25
"""Seconds after a Code2Wav broke off in which a Talker's end is looked for: codes that stop are its fault."""
CODES_GONE = frozenset({"channel_stream_failed", "channel_producer_lost", "channel_error", "codes_invalid"})
"""What a Code2Wav says of codes that cannot be had any more, or are none."""
THINKER_GONE = "thinker_lost"
"""What a Talker says of conditioning that cannot be had any more: no other Talker could have it."""
THE_REQUESTS = frozenset({400, 422})
"""What a Talker answers to a request that is itself at fault."""


class Speech:
    """`frames` is how many codec frames were made of the speech, `samples` how many samples were given out."""

    def __init__(
        self, parts: SpeechParts, ask: Ask, journal: Journal, model: str, name: str, conditioning: tuple[str, ...]
    ) -> None:
        """`name` is unique to the attempt, `conditioning` are references to its Thinker's streams."""
        self.frames = self.samples = 0
        self._parts = parts
        self._ask = ask
        self._journal = journal
        self._model = model
        self._name = name
        self._conditioning = conditioning
        self._calls = 0
        self._begun_at = 0
        """The sample from which the latest Code2Wav was asked."""
        self._asked_again: set[str] = set()
        self._short_at: int | None = None
        """The sample at which a Code2Wav ended that should not have."""
        self._failures: Counter[Role] = Counter()
        self._talk: Talk | None = None
        self._silence = Silence(parts.deadlines.speech_first, parts.deadlines.speech_idle)
        self._engines: dict[Role, Engine] = {}
        self._tried: dict[Role, frozenset[str]] = {Role.TALKER: frozenset(), Role.CODE2WAV: frozenset()}

    @property
    def fields(self) -> dict[str, Any]:
        """What the record says of it."""
        engines = {role.value: engine.id for role, engine in self._engines.items()}
        return {**engines, "conditioning": list(self._conditioning)}

    def take_engines(self) -> None:
        """The first Talker and the first Code2Wav. Raises NoRoutableEngine."""
        for role, engine in [(role, self._pick(role, frozenset())) for role in self._tried]:
            self._take(role, engine)

    def text_is_out(self) -> None:
        """From now on there is no reason for a long silence."""
        self._silence.text_is_out()

    def close(self) -> None:
        """Ends the Talker's call, and gives the engines' places back. Whoever takes the sound ends Code2Wav's."""
        if self._talk is not None:
            self._talk.close()
        for role in list(self._engines):
            self._leave(role)

    async def pcm(self) -> AsyncGenerator[bytes, None]:
        """s16le, 24 kHz, as it is made; nothing is asked for before the first is. Raises SpeechFailed."""
        try:
            while True:
                try:
                    async with aclosing(self._from_here()) as sound:
                        async for part in sound:
                            self.samples += len(part) // SAMPLE_BYTES
                            yield part
                    self._succeeded()
                    return
                except EngineError as error:
                    await self._change(error)
        except NoRoutableEngine as e:
            raise SpeechFailed(f"speech cannot begin: {e.message}") from None
        except SpeechFailed:
            self.close()  # the text may go on for long
            raise

    async def _from_here(self) -> AsyncGenerator[bytes, None]:
        """One Talker's and one Code2Wav's part. Raises EngineError, NoRoutableEngine."""
        if not self._engines:
            self.take_engines()
        talk = self._talk
        if talk is None:
            talk = await self._unless_lost(self._ask_talker(self._engines[Role.TALKER]), None)
        self._begun_at = self.samples
        most = self._ask.sampling.get("max_frames", MAX_FRAMES)
        sound = vocode(
            self._parts.client,
            self._engines[Role.CODE2WAV],
            self._new_name(),
            Codes(talk.engine.id, talk.codes, most, talk.ended),
            self.samples,
            self._parts.deadlines.speech,
        )
        async with aclosing(sound):
            while part := await self._unless_lost(anext(sound, b""), talk):
                yield part
        self.frames = talk.ended.result()

    async def _ask_talker(self, engine: Engine) -> Talk:
        """Kept as soon as it is there: whoever waits for it may be gone by then, and `close` must find it."""
        name = self._new_name()
        body = {
            "request_id": name,
            "conditioning": self._conditioning,
            "speaker": self._ask.speaker,
            **self._ask.sampling,
        }
        self._talk = await Talk.begin(
            self._parts.client, engine, name, body, self._parts.deadlines.speech, self._has_told
        )
        return self._talk

    def _has_told(self, frames: int) -> None:
        self.frames = max(self.frames, frames)
        self._silence.heard()

    async def _unless_lost(self, work: Awaitable[T], talk: Talk | None) -> T:
        """What it gives. Raises what the Talker's call ended with, if that comes first: codes that stop would be waited
        for in vain; EngineTimeout where all are silent for too long."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                waits: list[asyncio.Future[Any]] = [task]
                if talk is not None and not talk.ended.done():
                    waits.append(talk.ended)
                elif talk is not None:
                    talk.ended.result()
                if task.done():
                    return task.result()
                if not await self._silence.until(*waits):
                    raise self._late()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _late(self) -> EngineTimeout:
        role = Role.TALKER if self._talk is None or not self._talk.ended.done() else Role.CODE2WAV
        engine = self._engines[role].id
        return EngineTimeout(f"engine {engine} was silent for {self._silence.bound:g} s in mid-speech", engine=engine)

    async def _change(self, error: EngineError) -> None:
        """Another engine in the place of the one that failed, or the same for another word. Raises SpeechFailed if
        there is to be none."""
        role = await self._role_of(error)
        if self._is_asked_again(role, error):
            log.info("request %s: %s; it is asked again", self._journal.record.id, error.message)
            return
        failed = self._engines[role]
        self._failures[role] += 1
        if _may_help(error):
            self._parts.fleet.failed(failed.id, error.message)
        if role is Role.TALKER and self._talk is not None:
            self._talk.close()
            self._talk = None
            self._silence.starts_anew()
        self._leave(role)
        self._tried[role] |= {failed.id}
        engine = self._next(role, error)
        if engine is None:
            if role is Role.TALKER and error.engine == failed.id and error.status in THE_REQUESTS:
                raise SpeechRefused(error.message)
            raise SpeechFailed(f"speech ended after {self.samples} samples: {error.message}")
        self._take(role, engine)
        log.info("request %s: %s; speech goes on with %s", self._journal.record.id, error.message, engine.id)
        self._parts.metrics.speech_retries.labels(role.value).inc()
        self._journal.fire(Event.SPEECH_RESUMED, **self.fields)

    def _is_asked_again(self, role: Role, error: EngineError) -> bool:
        """Once each Code2Wav that broke off in mid-sound."""
        parts = self._parts
        broke_off = isinstance(error, EngineBroken) and not isinstance(error, SoundShort)
        if role is not Role.CODE2WAV or not broke_off or self.samples == self._begun_at:
            return False
        if error.engine in self._asked_again or parts.policy is Policy.FAIL:
            return False
        self._asked_again.add(error.engine)
        return parts.budget.spend(parts.clock.monotonic())

    async def _role_of(self, error: EngineError) -> Role:
        """Whose fault it was. A Code2Wav that loses its codes breaks off, maybe before the Talker's own call does;
        where two end at the same sample, there is no more sound to be had of what the Talker counts."""
        if self._talk is None or error.engine == self._engines[Role.TALKER].id:
            return Role.TALKER
        if isinstance(error, EngineRefused) and error.code in CODES_GONE:
            return Role.TALKER
        if isinstance(error, SoundShort):
            again, self._short_at = error.at == self._short_at, error.at
            return Role.TALKER if again else Role.CODE2WAV
        with suppress(EngineError):
            await asyncio.wait({self._talk.ended}, timeout=SAME_FAULT_WITHIN)
            if self._talk.ended.done():
                self._talk.ended.result()
            return Role.CODE2WAV
        return Role.TALKER

    def _next(self, role: Role, error: EngineError) -> Engine | None:
        """None if there is to be none."""
        parts = self._parts
        if not _may_help(error):
            return None
        if parts.policy is Policy.FAIL or self._failures[role] >= parts.attempts:
            return None
        for tried in (self._tried[role], frozenset[str]()) if may_pass(error) else (self._tried[role],):
            try:
                engine = self._pick(role, tried)
            except NoRoutableEngine:
                continue
            return engine if parts.budget.spend(parts.clock.monotonic()) else None
        return None

    def _pick(self, role: Role, tried: frozenset[str]) -> Engine:
        candidates = self._parts.fleet.candidates()
        voice = self._ask.speaker if role is Role.TALKER else None
        return self._parts.picker.pick(candidates, Wish(role, self._model, tried=tried, voice=voice)).engine

    def _take(self, role: Role, engine: Engine) -> None:
        self._engines[role] = engine
        until = self._parts.clock.now() + self._parts.load_ttl
        self._parts.fleet.enter(engine.id, self._journal.record.id)
        self._journal.enter(Load(engine.id, self._journal.record.id, until))

    def _leave(self, role: Role) -> None:
        self._journal.leave(self._engines.pop(role).id)

    def _succeeded(self) -> None:
        for engine in self._engines.values():
            self._parts.fleet.succeeded(engine.id)

    def _new_name(self) -> str:
        self._calls += 1
        return f"{self._name}-{self._calls}"


def _may_help(error: EngineError) -> bool:
    """Whether another engine may do better."""
    return (may_help(error) or error.code in CODES_GONE) and error.code != THINKER_GONE
