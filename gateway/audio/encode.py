"""Whole audio in each format: WAV and PCM with nothing but Python, the rest by PyAV, which brings FFmpeg's encoders.

WAV, FLAC and PCM hold the very samples; MP3, AAC and Opus do not, and may begin some milliseconds later, as such
formats do. Nor can they hold none, which is no file to a player. A minute may take some seconds to encode (AAC: 1.6 s
where the core is otherwise idle): call this in a thread, and not in the event loop's own.
"""

from __future__ import annotations

import io
import wave
from typing import TYPE_CHECKING

from common.errors import ConfigurationError
from gateway.audio.formats import Format
from gateway.audio.pcm import SAMPLE_BYTES, SAMPLE_RATE

if TYPE_CHECKING:
    from av import AudioFrame

_ENCODERS = {
    Format.MP3: ("mp3", "libmp3lame", 128_000),
    Format.FLAC: ("flac", "flac", None),
    Format.OPUS: ("ogg", "libopus", 48_000),
    Format.AAC: ("adts", "aac", 96_000),
}
"""FFmpeg's container and encoder, and bits a second: what is clear for one voice at 24 kHz."""
_SHORTEST = SAMPLE_RATE // 50 * SAMPLE_BYTES
"""Bytes of 20 ms, an Opus frame: what is shorter is filled up with silence in MP3, AAC and Opus."""


def encode(pcm: bytes, kind: Format) -> bytes:
    """From s16le, 24 kHz, mono. Raises ValueError for half a sample, ConfigurationError if PyAV is missing."""
    if len(pcm) % SAMPLE_BYTES:
        raise ValueError(f"{len(pcm)} bytes of audio: expected whole samples of {SAMPLE_BYTES}")
    if kind is Format.PCM16:
        return pcm
    if kind is Format.WAV:
        return _wav(pcm)
    return _av(pcm, kind)


def _wav(pcm: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(SAMPLE_BYTES)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(pcm)
    return out.getvalue()


def _av(pcm: bytes, kind: Format) -> bytes:
    try:
        import av
    except ImportError as e:
        raise ConfigurationError(f"audio as {kind} needs PyAV ({e}): install duet[audio]") from None
    container, encoder, rate = _ENCODERS[kind]
    if rate is not None:
        pcm = pcm.ljust(_SHORTEST, b"\0")
    out = io.BytesIO()
    # `bitexact`: the same audio gives the same bytes, without FFmpeg's version or a random serial number in them
    with av.open(out, "w", format=container, options={"fflags": "+bitexact"}) as file:
        stream = file.add_stream(encoder, rate=SAMPLE_RATE, layout="mono")
        assert isinstance(stream, av.AudioStream)
        if rate is not None:
            stream.bit_rate = rate
        for frame in [_frame(pcm), None] if pcm else [None]:
            for packet in stream.encode(frame):
                file.mux(packet)
    return out.getvalue()


def _frame(pcm: bytes) -> AudioFrame:
    from av import AudioFrame

    frame = AudioFrame(format="s16", layout="mono", samples=len(pcm) // SAMPLE_BYTES)
    frame.sample_rate = SAMPLE_RATE
    frame.pts = 0
    # FFmpeg rounds a plane's size up
    frame.planes[0].update(pcm.ljust(frame.planes[0].buffer_size, b"\0"))
    return frame
