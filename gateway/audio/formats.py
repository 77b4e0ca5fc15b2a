"""The formats of OpenAI's API. `pcm16` is what chat completions calls s16le, `pcm` what `/v1/audio/speech` calls it."""

from __future__ import annotations

from enum import StrEnum

from common.errors import BadRequest


class Format(StrEnum):
    WAV = "wav"
    MP3 = "mp3"
    FLAC = "flac"
    OPUS = "opus"
    AAC = "aac"
    PCM16 = "pcm16"

    @property
    def content_type(self) -> str:
        return _CONTENT_TYPES[self]


_CONTENT_TYPES = {
    Format.WAV: "audio/wav",
    Format.MP3: "audio/mpeg",
    Format.FLAC: "audio/flac",
    Format.OPUS: "audio/ogg",
    Format.AAC: "audio/aac",
    Format.PCM16: "audio/pcm",
}
_ALSO = {"pcm": Format.PCM16}


def format_of(value: object, param: str) -> Format:
    """The format that a request names in the field `param`. Raises BadRequest for any other value."""
    if isinstance(value, str):
        name = _ALSO.get(value, value)
        if name in Format.__members__.values():
            return Format(name)
    known = ", ".join(Format)
    raise BadRequest(f"{param} is {value!r:.80}: expected one of {known}", param=param)
