"""Names under which vLLM and transformers know the Talker. Apart from the rest, so that a launcher imports neither."""

from __future__ import annotations

MODEL_TYPE = "duet_qwen3_omni_talker"
ARCHITECTURE = "DuetQwen3OmniTalker"
SPEECH_PLUGIN = "duet_speech"
"""vLLM's endpoint plugin with `POST /v1/speech`."""
