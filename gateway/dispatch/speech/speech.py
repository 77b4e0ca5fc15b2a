"""The sound of one attempt's answer, in order and each sample once, whatever becomes of a Talker or a Code2Wav.

| lost | what is asked again | why no sample repeats or is missing |
| --- | --- | --- |
| Code2Wav | itself, if it broke off; another, for the same codes | it begins at the sample that was reached |
| Talker | another, for the same conditioning; then Code2Wav | the same seed gives the same codes |

The Thinker's rows stay with its engines until nobody asked for them for a while, so they can be read a second time.
A Code2Wav that breaks off cannot say why; asked again it says so by a status, if it was for want of codes. Lost is also
who is found to be out, and who is silent for too long (`silence.py`): the Talker, until it has told its last frame or
many since the last sound; then Code2Wav.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from common.engine import Engine, Role
from common.errors import EngineBroken, EngineError, EngineRefused, EngineTimeout, NoRoutableEngine
from gateway.audio.pcm import SAMPLE_BYTES
from gateway.dispatch.journal import Journal
from gateway.dispatch.speech.ask import MAX_FRAMES, Ask
from gateway.dispatch.speech.errors import SpeechFailed, SpeechRefused
from gateway.dispatch.speech.parts import SpeechParts
from gateway.dispatch.speech.silence import Silence
from gateway.dispatch.speech.staff import CODES_GONE, ROLES, UNREACHED, Staff
from gateway.dispatch.speech.talk import Talk
from gateway.dispatch.speech.vocode import Codes, Miscounted, Part, vocode
from gateway.lifecycle import Event

log = logging.getLogger(__name__)
T = TypeVar("T")

SAME_FAULT_WITHIN = 0.25
"""Seconds after a Code2Wav broke off in which a Talker's end is looked for: codes that stop are its fault."""
THE_REQUESTS = frozenset({400, 422})
"""What a Talker answers to a request that is itself at fault."""


class Speech:
    """`frames` is how many codec frames were made of the speech, where it failed how many of them were heard; `samples`
    is how many samples were given out."""

    def __init__(
        self, parts: SpeechParts, ask: Ask, journal: Journal, model: str, name: str, conditioning: tuple[str, ...]
    ) -> None:
        """`name` is unique to the attempt, `conditioning` are references to its Thinker's streams."""
        self.frames = self.samples = 0
        self._heard = 0
        """Frames that have begun to sound."""
        self._told = 0
        """Frames that the Talker has told."""
        self._parts = parts
        self._ask = ask
        self._journal = journal
        self._name = name
        self._conditioning = conditioning
        self._calls = 0
        self._begun_at = 0
        """The sample from which the latest Code2Wav was asked."""
        self._miscounted_at: int | None = None
        """The sample at which a Code2Wav ended that should not have, or did not end that should."""
        self._unreached = ""
        """The codes that a Code2Wav did not reach."""
        self._talk: Talk | None = None
        self._staff = Staff(parts, journal, model, ask.speaker)
        self._silence = Silence(parts.deadlines.speech_first, parts.deadlines.speech_idle)

    @property
    def fields(self) -> dict[str, Any]:
        """What the record says of it."""
        return {**self._staff.fields, "conditioning": list(self._conditioning)}

    def take_engines(self) -> None:
        """The first Talker and the first Code2Wav. Raises NoRoutableEngine."""
        self._staff.take()

    def text_is_out(self) -> None:
        """From now on there is no reason for a long silence."""
        self._silence.text_is_out()

    def close(self) -> None:
        """Ends the Talker's call, and gives the engines' places back. Whoever takes the sound ends Code2Wav's."""
        if self._talk is not None:
            self._talk.close()
        self._staff.leave()

    async def pcm(self) -> AsyncGenerator[bytes, None]:
        """s16le, 24 kHz, as it is made; nothing is asked for before the first is. Raises SpeechFailed."""
        try:
            while True:
                try:
                    async with aclosing(self._from_here()) as sound:
                        async for pcm, frames in sound:
                            self.samples += len(pcm) // SAMPLE_BYTES
                            self._heard = frames
                            self._silence.sounded()
                            yield pcm
                    self._staff.succeeded()
                    return
                except EngineError as error:
                    await self._change(error)
        except NoRoutableEngine as e:
            raise SpeechFailed(f"speech cannot begin: {e.message}") from None
        except SpeechFailed:
            self.frames = self._heard
            self.close()  # the text may go on for long
            raise

    async def _from_here(self) -> AsyncGenerator[Part, None]:
        """One Talker's and one Code2Wav's part. Raises EngineError, NoRoutableEngine."""
        if not self._staff:
            self.take_engines()
        talk = self._talk
        if talk is None:
            talk = await self._unless_lost(self._ask_talker(self._staff[Role.TALKER]), None)
        self._begun_at = self.samples
        most = self._ask.sampling.get("max_frames", MAX_FRAMES)
        sound = vocode(
            self._parts.client,
            self._staff[Role.CODE2WAV],
            self._new_name(),
            Codes(talk.engine.id, talk.codes, most, talk.ended),
            self.samples,
            self._parts.deadlines.speech,
        )
        async with aclosing(sound):
            while part := await self._unless_lost(anext(sound, None), talk):
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
        self._told = 0
        self._talk = await Talk.begin(
            self._parts.client, engine, name, body, self._parts.deadlines.speech, self._has_told
        )
        return self._talk

    def _has_told(self, frames: int) -> None:
        self._silence.heard(frames - self._told)
        self._told = frames
        self.frames = max(self.frames, frames)

    async def _unless_lost(self, work: Awaitable[T], talk: Talk | None) -> T:
        """What it gives. Raises what the Talker's call ended with, if that comes first: codes that stop would be waited
        for in vain; EngineTimeout where all are silent for too long."""
        task = asyncio.ensure_future(work)
        roles = ROLES if talk is not None else (Role.TALKER,)
        outs = {role: asyncio.ensure_future(self._staff.lost(role).wait()) for role in roles}
        try:
            while True:
                waits: list[asyncio.Future[Any]] = [task, *outs.values()]
                if talk is not None and not talk.ended.done():
                    waits.append(talk.ended)
                elif talk is not None:
                    talk.ended.result()
                if task.done():
                    return task.result()
                gone = [role for role, out in outs.items() if out.done()]
                for role in gone:
                    self._silence.is_out(role)
                    del outs[role]
                if not gone and not await self._silence.until(*waits):
                    raise self._late()
        finally:
            for waited in (task, *outs.values()):
                waited.cancel()
            await asyncio.gather(task, *outs.values(), return_exceptions=True)

    def _late(self) -> EngineTimeout:
        made = self._talk is not None and self._talk.ended.done()
        role = Role.CODE2WAV if made or self._silence.is_code2wavs else Role.TALKER
        engine = self._staff[role].id
        out = ", and answers no health check" if self._silence.is_any_out else ""
        return EngineTimeout(
            f"engine {engine} was silent in mid-speech for more than {self._silence.bound:g} s{out}", engine=engine
        )

    async def _change(self, error: EngineError) -> None:
        """Another engine in the place of the one that failed, or the same for another word. Raises SpeechFailed if
        there is to be none."""
        role = await self._role_of(error)
        failed, request = self._staff[role].id, self._journal.record.id
        if role is Role.CODE2WAV and self._broke_off(error) and self._staff.asks_again(role):
            log.info("request %s: %s; it is asked again", request, error.message)
            return
        if role is Role.TALKER and self._talk is not None:
            self._talk.close()
            self._talk = None
        self._silence.starts_anew(role)
        engine = self._staff.replace(role, error, begun=self.frames > 0)
        if engine is None:
            if role is Role.TALKER and error.engine == failed and error.status in THE_REQUESTS:
                raise SpeechRefused(error.message)
            why = "; the retry budget was used up" if self._staff.denied else ""
            raise SpeechFailed(f"speech ended after {self.samples} samples: {error.message}{why}")
        log.info("request %s: %s; speech goes on with %s", request, error.message, engine.id)
        self._journal.fire(Event.SPEECH_RESUMED, **self.fields)

    def _broke_off(self, error: EngineError) -> bool:
        """In mid-sound, where a connection's end is all that can be told."""
        return isinstance(error, EngineBroken) and not isinstance(error, Miscounted) and self.samples > self._begun_at

    async def _role_of(self, error: EngineError) -> Role:
        """Whose fault it was. A Code2Wav that loses its codes breaks off, maybe before the Talker's own call does;
        where two end at the same sample, there is no more sound to be had of what the Talker counts; and where there
        is no other Code2Wav, another Talker's count is what can be tried. Codes that one Code2Wav does not reach are
        another's to try, once."""
        if self._talk is None or error.engine == self._staff[Role.TALKER].id:
            return Role.TALKER
        if isinstance(error, EngineRefused) and error.code in CODES_GONE:
            again, self._unreached = self._unreached == self._talk.codes, self._talk.codes
            if error.code != UNREACHED or again or not self._staff.has_another(Role.CODE2WAV):
                return Role.TALKER
        if isinstance(error, Miscounted):
            again, self._miscounted_at = error.at == self._miscounted_at, error.at
            alone = not self._staff.has_another(Role.CODE2WAV) and self._staff.has_another(Role.TALKER)
            return Role.TALKER if again or alone else Role.CODE2WAV
        with suppress(EngineError):
            await asyncio.wait({self._talk.ended}, timeout=SAME_FAULT_WITHIN)
            if self._talk.ended.done():
                self._talk.ended.result()
            return Role.CODE2WAV
        return Role.TALKER

    def _new_name(self) -> str:
        self._calls += 1
        return f"{self._name}-{self._calls}"
