"""A Qwen3-Omni of about 0.8 million parameters: Thinker, Talker and Code2Wav, the same for the same seed.

Its weights are random, and it sounds like that. What it is for: everything that must be the same as transformers'
own `generate` (tokens, codes, samples) can be compared in seconds, without a download and without a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engines.tiny.omni_config import MEL_BINS, omni_config
from engines.tiny.omni_tokenizer import Tokens, make_omni_tokenizer

EMBEDDING_SPREAD, WEIGHT_SPREAD = 1.0, 0.35
"""Standard deviations in Thinker and Talker. With the usual 0.02, greedy answers are one token again and again."""
LOUDNESS = 0.2
"""Root mean square that Code2Wav's output is brought to, of a full scale of 1: audible, and rarely clipped."""


def make_omni(directory: Path, seed: int = 0) -> Path:
    """Makes a folder that vLLM and transformers load: fp32 safetensors, tokenizer, chat template, processors."""
    import torch
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeForConditionalGeneration

    directory.mkdir(parents=True, exist_ok=True)
    tokens = make_omni_tokenizer(directory, seed)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3OmniMoeForConditionalGeneration(omni_config(tokens)).float().eval()
        _spread(model, tokens)
        _listen(model.thinker.audio_tower)
        _tune(model.code2wav)
    model.save_pretrained(directory, safe_serialization=True)
    _write_processors(directory)
    ends = {"eos_token_id": tokens.im_end, "pad_token_id": tokens.end_of_text}
    # No sampling defaults: what a request leaves out is then the API's default, not the model's.
    (directory / "generation_config.json").write_text(json.dumps(ends))
    return directory


def _spread(model: Any, tokens: Tokens) -> None:
    """Weights that make Thinker and Talker wander; the Thinker says text and its end token, never another mark."""
    import torch

    parts = [model.thinker.model, model.thinker.lm_head, model.talker]
    for part in parts:
        for name, weight in part.named_parameters():
            if weight.dim() >= 2:
                weight.copy_(torch.randn(weight.shape) * (EMBEDDING_SPREAD if "embed" in name else WEIGHT_SPREAD))
    silent = [token for token in tokens.special if token != tokens.im_end]
    model.thinker.lm_head.weight[silent] = 0.0


def _listen(tower: Any) -> None:
    """Makes the audio encoder's rows as loud as text's, and different from sound to sound: with its own initialisation
    the Thinker answers the same to all of them."""
    import torch

    for weight in tower.parameters():
        if weight.dim() >= 2:
            torch.nn.init.kaiming_normal_(weight, nonlinearity="relu")
    frames = 400
    trial = torch.randn(MEL_BINS, frames) * torch.linspace(0.1, 1.0, frames)
    rows = tower(trial, feature_lens=torch.tensor([frames])).last_hidden_state
    scale = EMBEDDING_SPREAD / rows.std(0).mean()
    tower.proj2.weight.mul_(scale)
    tower.proj2.bias.copy_(-rows.mean(0) * scale)


def _tune(code2wav: Any) -> None:
    """Scales the vocoder until it is audible: its own initialisation gives about 1e-7.

    Each layer then keeps the size of what it is given; the last one is scaled by what a trial comes out with.
    """
    import torch

    for weight in code2wav.parameters():
        if weight.dim() >= 2:
            torch.nn.init.kaiming_uniform_(weight, a=1.0)
    config = code2wav.config
    last = code2wav.decoder[-1].conv
    trial = torch.randint(0, config.codebook_size, (1, config.num_quantizers, 50))
    last.weight.mul_(0.01)
    last.bias.zero_()
    loudness = float(code2wav(trial).std())
    last.weight.mul_(LOUDNESS / loudness)


def _write_processors(directory: Path) -> None:
    """How audio, images and videos become inputs, in the files that transformers' `AutoProcessor` reads."""
    audio = {
        "processor_class": "Qwen3OmniMoeProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": MEL_BINS,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 300,
        "dither": 0.0,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    pixels = {
        "processor_class": "Qwen3OmniMoeProcessor",
        "patch_size": 4,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 16384},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    image = {**pixels, "image_processor_type": "Qwen2VLImageProcessor"}
    video = {**pixels, "video_processor_type": "Qwen2VLVideoProcessor"}
    files = {"preprocessor_config.json": {**image, **audio}, "video_preprocessor_config.json": video}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1))
