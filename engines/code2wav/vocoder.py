"""The model: transformers' Code2Wav, loaded alone out of a whole Qwen3-Omni's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import ConfigurationError
from engines.code2wav.chunker import Codes
from engines.code2wav.geometry import Geometry, lookback

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "code2wav."
"""Of its weights' names in the whole model's files."""

Wave = NDArray[np.float32]
"""`[samples]`, in [-1, 1]."""


class Vocoder:
    """fp32 on CPUs, bfloat16 on GPUs, as it is given. Not for several threads at once.

    `lookback`: a chunk's samples depend on so many frames before its own, 578 for Qwen3-Omni. With less context they
    are not those of one full pass.
    """

    def __init__(self, model: Any) -> None:
        """`model` is transformers', on its device and in its dtype."""
        config = model.config
        self.geometry = Geometry.of(
            ratios=config.upsampling_ratios,
            rates=config.upsample_rates,
            codebook=config.codebook_size,
            groups=config.num_quantizers,
        )
        self.lookback = lookback(
            ratios=config.upsampling_ratios,
            rates=config.upsample_rates,
            window=config.sliding_window,
            layers=config.num_hidden_layers,
            tail=self.geometry.tail,
        )
        self.config = config
        self._model = model.eval()

    @classmethod
    def load(cls, directory: Path, *, device: str = "cpu", dtype: str | None = None) -> Vocoder:
        """Raises ConfigurationError if the folder has no Code2Wav."""
        import torch
        from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig
        from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

        config = Qwen3OmniMoeCode2WavConfig(**_config_of(directory))
        kind = getattr(torch, dtype or ("float32" if device == "cpu" else "bfloat16"))
        model: Any = Qwen3OmniMoeCode2Wav(config)
        model.load_state_dict(_weights_of(directory))
        return cls(model.to(device=device, dtype=kind))

    def decode(self, batch: Sequence[Codes]) -> list[Wave]:
        """Each of `[frames, groups]` to its `geometry.samples(frames)` samples, all in one pass.

        Shorter ones are filled up behind: no sample that is kept depends on a frame after its own.
        """
        import torch

        longest = max(len(codes) for codes in batch)
        padded = np.zeros((len(batch), self.geometry.groups, longest), dtype=np.int64)
        for row, codes in zip(padded, batch, strict=True):
            row[:, : len(codes)] = codes.T
        with torch.inference_mode():
            waves = self._model(torch.from_numpy(padded).to(self._model.device)).float().cpu().numpy()
        return [wave[0, : self.geometry.samples(len(codes))] for wave, codes in zip(waves, batch, strict=True)]


def pcm16(wave: Wave) -> bytes:
    """s16le of samples in [-1, 1]."""
    return (np.clip(wave, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def _config_of(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise ConfigurationError(f"model folder {str(directory)!r}: config.json cannot be read: {e}") from None
    found = config.get("code2wav_config")
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: has no code2wav_config; expected a whole Qwen3-Omni")
    return found


def _weights_of(directory: Path) -> dict[str, Tensor]:
    """Only the files that hold some of them are opened, and only these weights read."""
    from safetensors import safe_open

    index = directory / "model.safetensors.index.json"
    if index.is_file():
        files = {file for name, file in json.loads(index.read_text())["weight_map"].items() if name.startswith(PREFIX)}
    else:
        files = {"model.safetensors"}
    weights = {}
    for file in sorted(files):
        with safe_open(directory / file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no dictionary
                if name.startswith(PREFIX):
                    weights[name.removeprefix(PREFIX)] = opened.get_tensor(name)
    if not weights:
        raise ConfigurationError(f"model folder {str(directory)!r}: no weights named {PREFIX}…")
    return weights
