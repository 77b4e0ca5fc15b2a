"""A folder with the Talker alone, out of a whole checkpoint in two shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from common.errors import ConfigurationError  # noqa: E402
from engines.talker import make_talker  # noqa: E402
from engines.talker.checkpoint import WHOLE  # noqa: E402
from engines.talker.names import ARCHITECTURE  # noqa: E402

TABLE = "thinker.model.embed_tokens.weight"


@pytest.fixture
def omni(tmp_path: Path) -> Path:
    folder = tmp_path / "omni"
    folder.mkdir()
    config: dict[str, Any] = {name: at for at, name in enumerate(WHOLE)}
    config |= {"talker_config": {"codec_pad_id": 5}, "thinker_config": {"text_config": {"vocab_size": 7}}}
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text("{}")
    _save({TABLE: torch.ones(7, 2), "thinker.lm_head.weight": torch.zeros(7, 2)}, folder / "model-1.safetensors")
    _save({"talker.codec_head.weight": torch.full((3, 2), 2.0)}, folder / "model-2.safetensors")
    _save({"code2wav.weight": torch.zeros(1)}, folder / "model-3.safetensors")
    return folder


def _save(weights: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(weights, path)


def test_it_has_the_talkers_weights_and_the_text_table(omni: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    made = make_talker(omni, tmp_path / "talker")
    config = json.loads((made / "config.json").read_text())
    assert config["architectures"] == [ARCHITECTURE]
    assert (config["thinker_vocab_size"], config["dtype"], config["codec_pad_id"]) == (7, "bfloat16", 5)
    assert [config[name] for name in WHOLE] == list(range(len(WHOLE)))
    found = {name: tensor for shard in made.glob("*.safetensors") for name, tensor in load_file(shard).items()}
    assert {name: tensor.mean().item() for name, tensor in found.items()} == {TABLE: 1, "talker.codec_head.weight": 2}
    places = json.loads((made / "model.safetensors.index.json").read_text())["weight_map"]
    assert all(name in load_file(made / shard) for name, shard in places.items())
    assert (made / "tokenizer.json").exists()


def test_a_checkpoint_without_a_talker_is_refused(omni: Path, tmp_path: Path) -> None:
    (omni / "model-2.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"1 weights of a Talker; expected talker\.\*"):
        make_talker(omni, tmp_path / "talker")
