"""Sizes of the tiny Qwen3-Omni. Every part of the real one is there; only its numbers are small.

What bounds them from below: vLLM's CPU kernels want hidden sizes that are multiples of 32 and heads of 32 or more;
transformers suppresses the last 1024 ids of the Talker but its end id, so its vocabulary is 1024 and a codebook;
vLLM and transformers both count an audio's rows by mel chunks of 100 frames, which is `n_window` 50.
"""

from __future__ import annotations

from typing import Any

from engines.tiny.omni_tokenizer import Tokens
from engines.tiny.tokenizer import MAX_LENGTH

CODEBOOK = 64
GROUPS = 16
MEL_BINS = 32
HIDDEN = 64
SPEAKERS = ("ethan", "chelsie", "aiden")
TALKER_VOCABULARY = 1024 + CODEBOOK

_ROTARY = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "mrope_section": [8, 4, 4],
    "interleaved": True,
    "mrope_interleaved": True,
}
_MIXTURE = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "hidden_size": HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": MAX_LENGTH,
    "rope_parameters": _ROTARY,
    "tie_word_embeddings": False,
}


def omni_config(tokens: Tokens) -> Any:
    """transformers' `Qwen3OmniMoeConfig` of the whole model."""
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeConfig

    return Qwen3OmniMoeConfig(
        thinker_config=_thinker(tokens),
        talker_config=_talker(tokens),
        code2wav_config=_code2wav(),
        enable_audio_output=True,
        im_start_token_id=tokens.im_start,
        im_end_token_id=tokens.im_end,
        system_token_id=tokens.system,
        user_token_id=tokens.user,
        assistant_token_id=tokens.assistant,
        tts_pad_token_id=tokens.tts_pad,
        tts_bos_token_id=tokens.tts_bos,
        tts_eos_token_id=tokens.tts_eos,
    )


def _thinker(tokens: Tokens) -> dict[str, Any]:
    text = {**_MIXTURE, "vocab_size": tokens.size, "intermediate_size": 128, "num_hidden_layers": 3}
    text |= {"eos_token_id": tokens.im_end, "pad_token_id": tokens.end_of_text, "bos_token_id": None}
    audio = {
        "d_model": 32,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "num_mel_bins": MEL_BINS,
        "output_dim": HIDDEN,
        "downsample_hidden_size": 8,
        "n_window": 50,
        "n_window_infer": 400,
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 16,
        "image_size": 16,  # vLLM makes an embedding for each of its patches, where transformers takes the number above
        "apply_vit_abs_pos_embed": True,
        "deepstack_visual_indexes": [0],
    }
    return {
        **_media(tokens),
        "text_config": text,
        "audio_config": audio,
        "vision_config": vision,
        "user_token_id": tokens.user,
        "vision_end_token_id": tokens.vision_end,
        "audio_end_token_id": tokens.audio_end,
        "audio_start_token_id": tokens.audio_start,
    }


def _talker(tokens: Tokens) -> dict[str, Any]:
    eos = TALKER_VOCABULARY - 32  # among the last 1024: the ids that transformers keeps the Talker from saying
    text = {**_MIXTURE, "vocab_size": TALKER_VOCABULARY, "intermediate_size": 96, "num_hidden_layers": 2}
    text |= {"shared_expert_intermediate_size": 64}
    predictor = {
        "vocab_size": CODEBOOK,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_code_groups": GROUPS,
    }
    return {
        **_media(tokens),
        "text_config": text,
        "code_predictor_config": predictor,
        "num_code_groups": GROUPS,
        "thinker_hidden_size": HIDDEN,
        "accept_hidden_layer": 2,
        "spatial_merge_size": 2,
        "codec_eos_token_id": eos,
        "codec_nothink_id": eos + 1,
        "codec_think_bos_id": eos + 2,
        "codec_think_eos_id": eos + 3,
        "codec_pad_id": eos + 4,
        "codec_bos_id": eos + 5,
        "audio_start_token_id": tokens.audio_start,
        "speaker_id": {name: eos + 6 + at for at, name in enumerate(SPEAKERS)},
    }


def _media(tokens: Tokens) -> dict[str, Any]:
    return {
        "audio_token_id": tokens.audio,
        "image_token_id": tokens.image,
        "video_token_id": tokens.video,
        "vision_start_token_id": tokens.vision_start,
        "position_id_per_seconds": 13,
    }


def _code2wav() -> dict[str, Any]:
    """The real rates, so 1920 samples a frame; attention looks back 14 frames in all, well within 25 of context."""
    return {
        "codebook_size": CODEBOOK,
        "hidden_size": 32,
        "max_position_embeddings": 8000,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_quantizers": GROUPS,
        "upsample_rates": (8, 5, 4, 3),
        "upsampling_ratios": (2, 2),
        "decoder_dim": 48,
        "sliding_window": 8,
    }
