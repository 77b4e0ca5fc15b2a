"""What can go wrong with speech.

AudioUnsupported   sound is asked of a gateway, or of a request, that has none
AudioNotFound      a message refers to an answer that is not known any more
SpeechFailed       no more sound will come; the text is not touched by it
SpeechRefused      because the request is one that no Talker speaks for
"""

from __future__ import annotations

from common.errors import BadRequest, DuetError, NotFound


class AudioUnsupported(BadRequest):
    """No answer of this model, or to this request, can be spoken."""

    code = "audio_unsupported"


class AudioNotFound(NotFound):
    """The audio id in a message was never given out, or its time is over."""

    code = "audio_not_found"


class SpeechFailed(DuetError):
    """A Talker or a Code2Wav was lost and nobody could go on, or refused the answer."""

    status = 502
    type = "engine_error"
    code = "speech_failed"


class SpeechRefused(SpeechFailed):
    """A Talker says that the request is at fault: no other one could do better."""

    status = 400
    type = "invalid_request_error"
    code = "speech_refused"
