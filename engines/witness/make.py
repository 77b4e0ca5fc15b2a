"""The witness's folder: the tiny text model's body and tokenizer, and the talker's weights beside them."""

from __future__ import annotations

import json
from pathlib import Path

from engines.tiny.text import SPREAD, make_text

ARCHITECTURE = "DuetWitnessForCausalLM"
WEIGHTS = "model.safetensors"
CALM = 0.1
"""Standard deviation of the mixers' weights. One group after the other goes through them: with wider ones the last
digit of a hidden state, which hangs on the size of the batch, becomes another code 15 groups later."""


def make_witness(directory: Path, seed: int = 0) -> Path:
    """Makes a folder that vLLM loads once the witness is registered: fp32, the same for the same seed."""
    import torch
    from safetensors.torch import load_file, save_file

    from engines.witness.talker import Talker

    make_text(directory, seed)
    config = json.loads((directory / "config.json").read_text())
    with torch.random.fork_rng():
        torch.manual_seed(seed + 1)
        talker = Talker(config["vocab_size"], config["hidden_size"])
        for name, weight in talker.named_parameters():
            torch.nn.init.normal_(weight, std=CALM if name.startswith("mixers.") else SPREAD)
    body = load_file(directory / WEIGHTS)
    speaking = {f"talker.{name}": weight for name, weight in talker.state_dict().items()}
    save_file({**body, **speaking}, directory / WEIGHTS, metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps({**config, "architectures": [ARCHITECTURE]}, indent=1))
    return directory
