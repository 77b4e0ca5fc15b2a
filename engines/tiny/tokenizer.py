"""A byte-level BPE tokenizer with a chat template that renders all that a chat can have."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

VOCABULARY = 1024
"""Tokens at most: 3 special ones, 256 bytes, and merges learnt from made-up text."""
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MAX_LENGTH = 4096

CHAT_TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>system\\nTools:\\n' }}"
    "{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{%- if m['content'] is string %}{{ m['content'] }}"
    "{%- elif m['content'] %}{%- for part in m['content'] %}{{ part['text'] }}{%- endfor %}{%- endif %}"
    "{%- if m['tool_calls'] %}{%- for call in m['tool_calls'] %}{{ call | tojson }}{%- endfor %}{%- endif %}"
    "{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)

_SYLLABLES = (
    "ba be co da do el en fi ga he in ka la lo ma mi na no or pa pe qui ra re ri sa se ta te ti to un va ve wa za"
)
_COMMON = "the of and to in is it that for on with as was at by this from or an be are not have you"


def make_tokenizer(directory: Path, seed: int = 0) -> int:
    """Writes `tokenizer.json` and `tokenizer_config.json`; returns the size of the vocabulary."""
    tokenizer = trained((END_OF_TEXT, IM_START, IM_END), sentences(random.Random(seed)))
    write(tokenizer, directory, CHAT_TEMPLATE)
    return int(tokenizer.get_vocab_size())


def trained(special: Sequence[str], text: Iterable[str]) -> Any:
    """A byte-level BPE tokenizer of VOCABULARY tokens learnt from `text`; the special ones take the ids from 0 on."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def write(tokenizer: Any, directory: Path, chat_template: str, **more: Any) -> None:
    """Writes the two files; `more` is what else `tokenizer_config.json` says."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_LENGTH,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, **more}, indent=1))


def sentences(rng: random.Random) -> Iterator[str]:
    """Made-up sentences: words of a few syllables, some of them again and again, as in a language."""
    syllables = _SYLLABLES.split()
    words = _COMMON.split() + ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(1500)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    for _ in range(2000):
        sentence = " ".join(rng.choices(words, weights, k=rng.randint(4, 16)))
        yield f"{sentence.capitalize()}{rng.choice('.,!?;:')} {rng.randint(0, 9999)}\n"
