"""A vLLM general plugin: vLLM then knows the Talker by the name in its folder's config. May be called again."""

from __future__ import annotations

from engines.talker.config import TalkerConfig
from engines.talker.names import ARCHITECTURE, MODEL_TYPE


def register() -> None:
    from transformers import AutoConfig
    from vllm import ModelRegistry

    AutoConfig.register(MODEL_TYPE, TalkerConfig, exist_ok=True)
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, "engines.talker.model:TalkerForConditionalGeneration")
