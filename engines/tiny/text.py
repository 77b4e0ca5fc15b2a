"""A Qwen3 text model of about 0.6 million parameters, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

from engines.tiny.tokenizer import MAX_LENGTH, make_tokenizer

SPREAD = 0.35
"""Standard deviation of the weights. Far above a trained model's: greedy answers then wander instead of repeating."""


def make_text(directory: Path, seed: int = 0) -> Path:
    """Makes a folder that vLLM and transformers load: fp32 safetensors, tokenizer, chat template.

    head_dim is 64: vLLM's attention on CPUs wants 32 or more. The end token is `<|im_end|>`.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = make_tokenizer(directory, seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=None,
        pad_token_id=0,
        eos_token_id=2,
        initializer_range=SPREAD,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(directory, safe_serialization=True)
    # No sampling defaults: what a request leaves out is then the API's default, not the model's.
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}))
    return directory
