"""What can go wrong in Code2Wav."""

from __future__ import annotations

from common.errors import DuetError


class CodesInvalid(DuetError):
    """A frame on the channel that does not hold codec codes."""

    code = "codes_invalid"


class VocoderFailed(DuetError):
    """The model raised; all requests of that batch end with it."""

    code = "vocoder_failed"
