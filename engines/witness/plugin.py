"""A vLLM general plugin: vLLM then knows the witness by the name in its folder's config. May be called again."""

from __future__ import annotations

from engines.witness.make import ARCHITECTURE


def register() -> None:
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, "engines.witness.model:WitnessForCausalLM")
