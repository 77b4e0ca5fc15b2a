"""Sound that is sent to vLLM, where torchaudio and torchcodec are not: `install.py` has removed them."""

from __future__ import annotations

from functools import wraps
from importlib.util import find_spec
from typing import Any

SYSTEM = 2
"""libsndfile's code for a fault that is not the file's."""


def resample_without_torchaudio() -> None:
    """vLLM 0.32 resamples by torchaudio, and neither its models nor its flags have a word in it. soxr is one of its
    other ways, and how transformers' own loader does it. An installed torchaudio is left to it."""
    if find_spec("torchaudio") is None:
        from vllm.multimodal import audio

        audio.resample_audio_torchaudio = audio.resample_audio_soxr


def refuse_broken_sound() -> None:
    """A file that libsndfile knows and cannot read is its sender's fault: as a ValueError it is answered with 400. vLLM
    0.32 does so for four of libsndfile's many codes, and answers the others with 500."""
    from vllm.multimodal.media import audio

    stock = audio.load_audio
    if hasattr(stock, "__wrapped__"):
        return

    @wraps(stock)
    def load_audio(*args: Any, **kwargs: Any) -> Any:
        try:
            return stock(*args, **kwargs)
        except RuntimeError as e:  # among them soundfile's LibsndfileError
            if getattr(e, "code", SYSTEM) == SYSTEM:
                raise
            raise ValueError(f"Invalid or corrupted audio data: {e}") from e

    audio.load_audio = load_audio
