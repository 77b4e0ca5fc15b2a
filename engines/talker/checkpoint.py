"""A folder with the Talker alone, out of a Qwen3-Omni checkpoint: its weights, and the Thinker's embedding table.

The table stands at the Talker so that text travels as ids, not as rows.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from common.cache import cache_dir
from common.errors import ConfigurationError
from engines.talker.names import ARCHITECTURE, MODEL_TYPE

TALKER = "talker."
TEXT_TABLE = "thinker.model.embed_tokens.weight"
COPIED = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "chat_template.json")
"""vLLM's server wants a tokenizer, though nothing is tokenized here."""

WHOLE = (
    "im_start_token_id",
    "user_token_id",
    "assistant_token_id",
    "tts_pad_token_id",
    "tts_bos_token_id",
    "tts_eos_token_id",
)
"""What the Talker's configuration takes over from the whole model's."""


def talker_folder(model: Path) -> Path:
    """Where the Talker of the folder `model` stands, or will: `model` itself if it is one, else a folder in the cache,
    another one for each state of the checkpoint's files."""
    config = (model / "config.json").read_bytes()
    if json.loads(config).get("model_type") == MODEL_TYPE:
        return model
    known = hashlib.sha256(str(model.resolve()).encode() + config)
    for shard in sorted(model.glob("*.safetensors")):
        state = shard.stat()
        known.update(f"{shard.name} {state.st_size} {state.st_mtime_ns}".encode())
    return cache_dir() / f"{model.resolve().name}-talker-{known.hexdigest()[:12]}"


def make_talker(omni: Path, directory: Path) -> Path:
    """Writes `directory` from the checkpoint folder `omni`, one shard for each of the checkpoint's that has weights of
    the Talker. Needs memory for one shard.

    Raises ConfigurationError if there are none."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_config(omni), indent=1))
    for name in COPIED:
        if (omni / name).exists():
            (directory / name).write_bytes((omni / name).read_bytes())
    found: dict[str, str] = {}
    for shard in sorted(omni.glob("*.safetensors")):
        with safe_open(shard, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(TALKER) or name == TEXT_TABLE]  # noqa: SIM118
            if names:
                save_file({name: file.get_tensor(name) for name in names}, directory / shard.name, {"format": "pt"})
                found |= dict.fromkeys(names, shard.name)
    if TEXT_TABLE not in found or len(found) == 1:
        raise ConfigurationError(
            f"model folder {str(omni)!r}: {len(found)} weights of a Talker; expected {TALKER}* and {TEXT_TABLE}"
        )
    index = {"metadata": {}, "weight_map": found}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return directory


def _config(omni: Path) -> dict[str, Any]:
    whole = json.loads((omni / "config.json").read_text())
    config: dict[str, Any] = dict(whole["talker_config"])
    config |= {name: whole[name] for name in WHOLE}
    config["thinker_vocab_size"] = whole["thinker_config"]["text_config"]["vocab_size"]
    config |= {"architectures": [ARCHITECTURE], "model_type": MODEL_TYPE}
    if dtype := whole.get("dtype") or whole.get("torch_dtype"):
        config["dtype"] = dtype
    return config
