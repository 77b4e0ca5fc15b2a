"""What can go wrong in Code2Wav."""

from __future__ import annotations

from common.errors import DuetError


class CodesInvalid(DuetError):
    """A frame on the channel that does not hold codec codes."""

    code = "codes_invalid"


class VocoderFailed(DuetError):
    """The model raised; all requests of that batch end with it."""

    code = "vocoder_failed"


class ServerEnds(DuetError):
    """This server was told to stop, and the request's codes had not come to a sound yet."""

    status = 503
    type = "service_unavailable"
    code = "server_ends"
