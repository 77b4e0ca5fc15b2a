"""Each format is read back by a decoder: lossless ones sample for sample, the others close to it."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from common.errors import BadRequest, ConfigurationError
from gateway.audio import Format, encode, format_of

np = pytest.importorskip("numpy", reason="the audio extra is not installed")
av = pytest.importorskip("av", reason="the audio extra is not installed")

LOSSLESS = (Format.WAV, Format.FLAC)
LOSSY = (Format.MP3, Format.OPUS, Format.AAC)
SAMPLES = 25 * 1920 - 555
MAGIC = {Format.WAV: b"RIFF", Format.FLAC: b"fLaC", Format.OPUS: b"OggS", Format.AAC: b"\xff\xf1"}


def voice(samples: int = SAMPLES) -> Any:
    """A tone that glides, with overtones and silence in it, s16."""
    at = np.arange(samples) / 24_000
    phase = 2 * np.pi * np.cumsum(200 + 400 * at) / 24_000
    wave = (np.sin(phase) + 0.3 * np.sin(3 * phase)) * (np.sin(2 * np.pi * 3 * at) > -0.5)
    return (wave * 12_000).astype("<i2")


def decoded(data: bytes) -> tuple[int, Any]:
    """Rate and samples, -1 to 1."""
    with av.open(io.BytesIO(data)) as file:
        rate = file.streams.audio[0].rate
        resampler = av.AudioResampler(format="flt", layout="mono", rate=24_000)
        frames = [out for frame in [*file.decode(audio=0), None] for out in resampler.resample(frame)]
    return rate, np.concatenate([frame.to_ndarray().flatten() for frame in frames])


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("samples", [1, 2, 1365, SAMPLES])
def test_lossless_formats_hold_the_very_samples(kind: Format, samples: int) -> None:
    data = encode(voice(samples).tobytes(), kind)
    rate, heard = decoded(data)
    assert rate == 24_000
    assert np.array_equal((heard * 32768).round().astype("<i2"), voice(samples))
    assert data.startswith(MAGIC[kind])


@pytest.mark.parametrize("kind", LOSSY)
def test_lossy_formats_sound_the_same(kind: Format) -> None:
    data = encode(voice().tobytes(), kind)
    said = voice() / 32768
    _, heard = decoded(data)
    assert abs(len(heard) - len(said)) < 0.1 * 24_000
    size = 2 * len(heard) + len(said)
    lag = int(np.fft.irfft(np.fft.rfft(heard, size) * np.fft.rfft(said, size).conj(), size)[:2400].argmax())
    length = min(len(said), len(heard) - lag)
    likeness = np.corrcoef(heard[lag : lag + length], said[:length])[0, 1]
    assert likeness > 0.95
    assert len(data) < len(voice().tobytes()) / 2
    assert data.startswith(MAGIC.get(kind, b""))


def test_pcm16_is_what_it_was() -> None:
    assert encode(voice().tobytes(), Format.PCM16) == voice().tobytes()


@pytest.mark.parametrize("kind", Format)
def test_the_same_audio_gives_the_same_bytes(kind: Format) -> None:
    assert encode(voice().tobytes(), kind) == encode(voice().tobytes(), kind)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_no_audio_is_no_sample(kind: Format) -> None:
    with av.open(io.BytesIO(encode(b"", kind))) as file:
        assert [*file.decode(audio=0)] == []
    assert encode(b"", Format.PCM16) == b""


@pytest.mark.parametrize("kind", LOSSY)
@pytest.mark.parametrize("samples", [0, 1])
def test_lossy_formats_can_be_played_however_short_they_are(kind: Format, samples: int) -> None:
    _, heard = decoded(encode(bytes(2 * samples), kind))
    assert 0 < len(heard) < 0.2 * 24_000
    assert abs(heard).max() < 1e-3


@pytest.mark.parametrize("kind", Format)
def test_half_a_sample_is_refused(kind: Format) -> None:
    with pytest.raises(ValueError, match="3 bytes of audio: expected whole samples"):
        encode(b"abc", kind)


@pytest.mark.parametrize("kind", [Format.FLAC, *LOSSY])
def test_what_is_missing_is_named(kind: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigurationError, match=rf"audio as {kind} needs PyAV .*duet\[audio\]"):
        encode(b"ab", kind)


@pytest.mark.parametrize(("value", "kind"), [("wav", Format.WAV), ("pcm16", Format.PCM16), ("pcm", Format.PCM16)])
def test_a_format_is_known_by_its_name(value: str, kind: Format) -> None:
    assert format_of(value, "audio.format") is kind
    assert kind.content_type.startswith("audio/")


@pytest.mark.parametrize("value", ["ogg", "WAV", "", None, 1, ["wav"], {}])
def test_another_format_is_refused_with_those_there_are(value: object) -> None:
    with pytest.raises(BadRequest, match="expected one of wav, mp3, flac, opus, aac, pcm16") as raised:
        format_of(value, "audio.format")
    assert raised.value.param == "audio.format"


def test_of_a_wrong_format_little_is_repeated() -> None:
    with pytest.raises(BadRequest) as refused:
        format_of("x" * 1_000_000, "audio.format")
    assert len(str(refused.value)) < 300
