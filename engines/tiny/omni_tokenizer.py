"""The text model's tokenizer with what Qwen3-Omni adds: marks around media and speech, and a template that places them.

The role names are one token each, as in Qwen's own vocabulary: whoever cuts a prompt into turns reads the one token
after `<|im_start|>`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.tiny.tokenizer import END_OF_TEXT, IM_END, IM_START, sentences, trained, write

ROLES = ("system", "user", "assistant")
_ROLE_LINES = 2000
"""Times that each role name stands in the text that the merges are learnt from: more often than any other word."""

_MEDIA = {
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
    "audio_token": "<|audio_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
}
"""Under the names by which transformers' processor looks for them."""
_SPEECH = ("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")

CHAT_TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>system\\nTools:\\n' }}"
    "{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{%- if m['content'] is string %}{{ m['content'] }}"
    "{%- elif m['content'] %}{%- for part in m['content'] %}"
    "{%- if 'audio' in part['type'] %}{{ '<|audio_start|><|audio_pad|><|audio_end|>' }}"
    "{%- elif 'image' in part['type'] %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif 'video' in part['type'] %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{%- else %}{{ part['text'] }}{%- endif %}"
    "{%- endfor %}{%- endif %}"
    "{%- if m['tool_calls'] %}{%- for call in m['tool_calls'] %}{{ call | tojson }}{%- endfor %}{%- endif %}"
    "{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ids that the model's configuration names, and `size`, how many tokens there are."""

    size: int
    end_of_text: int
    im_start: int
    im_end: int
    system: int
    user: int
    assistant: int
    tts_pad: int
    tts_bos: int
    tts_eos: int
    audio: int
    audio_start: int
    audio_end: int
    image: int
    video: int
    vision_start: int
    vision_end: int
    special: tuple[int, ...]
    """All that are not text."""


def make_omni_tokenizer(directory: Path, seed: int = 0) -> Tokens:
    """Writes `tokenizer.json` and `tokenizer_config.json`."""
    special = (END_OF_TEXT, IM_START, IM_END, *_MEDIA.values(), *_SPEECH)
    tokenizer = trained(special, _text(seed))
    write(tokenizer, directory, CHAT_TEMPLATE, **_MEDIA, extra_special_tokens=_MEDIA)
    return _tokens(tokenizer, special)


def _text(seed: int) -> Iterator[str]:
    yield from sentences(random.Random(seed))
    for role in ROLES:
        yield from [role + "\n"] * _ROLE_LINES


def _tokens(tokenizer: Any, special: tuple[str, ...]) -> Tokens:
    """Raises ValueError if a role name is not one token."""

    def one(text: str) -> int:
        ids = tokenizer.encode(text).ids
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens, {ids}; expected one")
        return int(ids[0])

    system, user, assistant = map(one, ROLES)
    tts_pad, tts_bos, tts_eos = map(one, _SPEECH)
    return Tokens(
        size=tokenizer.get_vocab_size(),
        end_of_text=one(END_OF_TEXT),
        im_start=one(IM_START),
        im_end=one(IM_END),
        system=system,
        user=user,
        assistant=assistant,
        tts_pad=tts_pad,
        tts_bos=tts_bos,
        tts_eos=tts_eos,
        audio=one(_MEDIA["audio_token"]),
        audio_start=one(_MEDIA["audio_bos_token"]),
        audio_end=one(_MEDIA["audio_eos_token"]),
        image=one(_MEDIA["image_token"]),
        video=one(_MEDIA["video_token"]),
        vision_start=one(_MEDIA["vision_bos_token"]),
        vision_end=one(_MEDIA["vision_eos_token"]),
        special=tuple(map(one, special)),
    )
