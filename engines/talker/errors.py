"""What can go wrong in the Talker.

ScriptInvalid        a prompt of the Thinker that nothing can be said to
SpeechUnsupported    a request that this Talker cannot speak for
ThinkerLost          the Thinker's streams ended without being whole
SpeechFailed         the engine ended the request
TextMissing          a step needs text that has not come: the scheduler let it run ahead
"""

from __future__ import annotations

from common.errors import BadRequest, DuetError


class ScriptInvalid(BadRequest):
    """The Thinker's prompt does not end where an assistant begins to speak."""

    code = "script_invalid"


class SpeechUnsupported(BadRequest):
    """What is asked for is not there: a speaker, say, or pictures in the prompt."""

    code = "speech_unsupported"


class ThinkerLost(DuetError):
    """What the Thinker had to tell cannot come any more."""

    status = 502
    type = "engine_error"
    code = "thinker_lost"


class SpeechFailed(DuetError):
    """The engine ended a request that nobody had ended."""

    status = 502
    type = "engine_error"
    code = "speech_failed"


class TextMissing(DuetError):
    """A decode step needs a text row that the Thinker has not told yet."""

    code = "text_missing"
