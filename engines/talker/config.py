"""The Talker's configuration: Qwen3-Omni's own `talker_config`, and the ids of the whole model that it needs."""

from __future__ import annotations

from typing import Any

from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeTalkerConfig

from engines.talker.names import MODEL_TYPE
from engines.talker.script import Marks


class TalkerConfig(Qwen3OmniMoeTalkerConfig):
    """`thinker_vocab_size` is how many rows the text embedding has; the fields of `checkpoint.WHOLE` are there too."""

    model_type = MODEL_TYPE

    def get_text_config(self, *args: Any, **kwargs: Any) -> Any:
        """The body's: that is the model which vLLM runs. transformers looks for a field of another name."""
        return self.text_config


def marks_of(config: Any) -> Marks:
    return Marks(
        im_start=config.im_start_token_id,
        user=config.user_token_id,
        assistant=config.assistant_token_id,
        sound=frozenset({config.audio_token_id}),
        sights=frozenset({config.image_token_id, config.video_token_id}),
    )
