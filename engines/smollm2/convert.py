"""From a Llama-family GGUF file to a Hugging Face folder: dequantized, renamed, q and k put back in order.

llama.cpp stores the rotary pairs of q and k side by side, Hugging Face as two halves; a model whose pairs are not put
back talks nonsense. The weights do not go through transformers' own
GGUF loading, which needs a further package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.errors import ConfigurationError

_LAYER = {
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
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert(gguf_file: Path, directory: Path, *, dtype: str = "float32") -> None:
    """Fills `directory` with config, tokenizer, chat template and one safetensors file of `dtype`.

    Raises ConfigurationError for a file that holds another kind of model.
    """
    import gguf
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    reader = gguf.GGUFReader(str(gguf_file))
    values = {key: field.contents() for key, field in reader.fields.items()}
    if values["general.architecture"] != "llama":
        raise ConfigurationError(
            f"{gguf_file.name} has architecture {values['general.architecture']!r}; expected 'llama'"
        )
    config = _config(values, tied="output.weight" not in {t.name for t in reader.tensors})
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    missing, unexpected = model.load_state_dict(_weights(reader, config, getattr(torch, dtype)), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ConfigurationError(
            f"{gguf_file.name} does not fit its config: missing {missing}, unexpected {unexpected}"
        )
    model.tie_weights()
    model.save_pretrained(directory, safe_serialization=True)
    ends = {"eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id}
    (directory / "generation_config.json").write_text(json.dumps(ends))
    tokenizer = AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    if not tokenizer.chat_template:
        tokenizer.chat_template = values["tokenizer.chat_template"]
    tokenizer.save_pretrained(directory)


def _config(values: dict[str, Any], *, tied: bool) -> Any:
    from transformers import LlamaConfig

    def of(name: str, default: Any = None) -> Any:
        return values.get(f"llama.{name}", default)

    return LlamaConfig(
        vocab_size=len(values["tokenizer.ggml.tokens"]),
        hidden_size=of("embedding_length"),
        intermediate_size=of("feed_forward_length"),
        num_hidden_layers=of("block_count"),
        num_attention_heads=of("attention.head_count"),
        num_key_value_heads=of("attention.head_count_kv"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=of("context_length"),
        rope_theta=of("rope.freq_base", 10000.0),
        tie_word_embeddings=tied,
        bos_token_id=values.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=values.get("tokenizer.ggml.eos_token_id"),
        pad_token_id=values.get("tokenizer.ggml.padding_token_id"),
    )


def _weights(reader: Any, config: Any, dtype: Any) -> dict[str, Any]:
    import torch
    from gguf.quants import dequantize

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        value = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        parts = tensor.name.removesuffix(".weight").split(".")
        if parts[0] == "blk":
            if parts[2] in heads:
                value = _halves(value, heads[parts[2]])
            name = f"model.layers.{parts[1]}.{_LAYER[parts[2]]}"
        else:
            name = _TOP[parts[0]]
        weights[f"{name}.weight"] = value.to(dtype)
    return weights


def _halves(value: Any, heads: int) -> Any:
    """`[heads * head_dim, hidden]`, each head's rows from pairs side by side to two halves."""
    rows, hidden = value.shape
    return value.reshape(heads, rows // heads // 2, 2, hidden).transpose(1, 2).reshape(rows, hidden)
