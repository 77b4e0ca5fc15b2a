"""One request between what the Thinker has said and what the Talker may read: what is there, and what a step needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from common.errors import BadRequest
from engines.talker.conditioning import Conditioning
from engines.talker.errors import TextMissing
from engines.talker.script import Marks, Script

Wait = Callable[[Callable[[], bool], float], bool]


class Silence(Enum):
    """What is read when the text is out."""

    EOS = "eos"
    PAD = "pad"


@dataclass(slots=True)
class Feed:
    """The conditioning is written by another thread while this reads: `ended` is looked at first, so that what is
    counted afterwards is all there will be."""

    conditioning: Conditioning
    marks: Marks
    refusal: BadRequest | None = None
    """Why this prompt cannot be spoken to: ScriptInvalid, SpeechUnsupported."""
    _script: Script | None = None
    _started: bool = False

    @property
    def script(self) -> Script | None:
        """None until the Thinker's prompt is known, and for one that is refused."""
        if self._script is None and self.refusal is None and (prompt := self.conditioning.prompt) is not None:
            try:
                self._script = Script.of(prompt, self.marks)
            except BadRequest as e:
                self.refusal = e
        return self._script

    def can_start(self) -> bool:
        """Whether the Talker's prompt is complete: hidden states of all sound, and the first text token behind it."""
        if not self._started and (script := self.script) is not None:
            spoken = self.conditioning.spoken(script.text_from)
            self._started = spoken > 0 and not self.conditioning.missing(script.media)
        return self._started

    def lost(self) -> str | None:
        """Why it will never start, or not go on; None if it may."""
        if self._started:
            return self.conditioning.failure
        script, told = self.script, self.conditioning.prompt_is_told
        if self.refusal is not None:
            return self.refusal.message
        missing = self.conditioning.missing(script.media) if script is not None and told else []
        if not missing:
            return self.conditioning.failure
        why = self.conditioning.lost or (
            "no engine that tells of this request computed them; if a prefix cache had them, give requests with sound "
            "a cache_salt of their own"
        )
        return f"{len(missing)} hidden states of sound are missing, the first at position {missing[0]}: {why}"

    def can_step(self, step: int) -> bool:
        """Whether the text of decode step `step`, from 0, is known."""
        ended, script = self.conditioning.ended, self.script
        return script is not None and (ended or self.conditioning.spoken(script.text_from) > step + 1)

    def text_within(self, step: int, wait: Wait, seconds: float) -> int | Silence:
        """The same as `text`, for a step that another process, which hears the Thinker by itself, has seen the text of:
        `wait` (`Inbox.wait`) waits for this one to hear it too. Raises TextMissing if that takes longer."""
        wait(lambda: self.can_step(step), seconds)
        return self.text(step)

    def text(self, step: int) -> int | Silence:
        """The text token of decode step `step`, or what is read in its place. Raises TextMissing."""
        ended, script = self.conditioning.ended, self.script
        spoken = self.conditioning.spoken(script.text_from) if script else 0
        if script is not None and step + 1 < spoken:
            return self.conditioning.ids[script.text_from + step + 1]
        if not ended:
            raise TextMissing(f"decode step {step} reads text token {step + 1}, and {spoken} have been told")
        return Silence.EOS if step + 1 == spoken else Silence.PAD
