"""What the Talker is given to read: which of the Thinker's positions, in what order, and what it says when. Pure.

    Thinker   system … | user … | assistant … | user … | <|im_start|> assistant \n | said 0, 1, 2, …
    Talker               user …                 user …   <|im_start|> assistant \n | pad pad pad pad bos said 0 | decode
                                                                     codec marks +   n   b   e   sp  pad bos

System turns and earlier answers are not read. The first said token stands in the prompt, decode step k is given said
token k + 1; behind the last one comes `tts_eos` once, and then `tts_pad` for as long as the Talker speaks.
transformers' `Qwen3OmniMoeForConditionalGeneration.generate` does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engines.talker.errors import ScriptInvalid, SpeechUnsupported

HEADER = 3
"""Tokens of an assistant turn before its text: the mark, the role, a line break."""
MARKS = 6
"""Positions between header and decode: four pads, bos, and the first text token."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Ids of the Thinker's vocabulary. `sound` positions have hidden states; `sights` cannot be placed yet."""

    im_start: int
    user: int
    assistant: int
    sound: Collection[int]
    sights: Collection[int]


@dataclass(frozen=True, slots=True)
class Script:
    """`read` are positions of user turns, `header` those of the header; text begins at position `text_from`.

    `media` are those of `read` at which there is sound: their rows are hidden states, not embeddings.
    """

    read: tuple[int, ...]
    media: tuple[int, ...]
    header: range

    @property
    def text_from(self) -> int:
        return self.header.stop

    @property
    def length(self) -> int:
        """Tokens in the Talker's prompt."""
        return len(self.read) + HEADER + MARKS

    @classmethod
    def of(cls, prompt: Sequence[int], marks: Marks) -> Script:
        """Raises ScriptInvalid, SpeechUnsupported."""
        starts = [at for at, token in enumerate(prompt) if token == marks.im_start]
        answer = [at for at in starts if at + 1 < len(prompt) and prompt[at + 1] == marks.assistant]
        if not answer or answer[-1] != starts[-1] or len(prompt) - answer[-1] < HEADER:
            raise ScriptInvalid(
                f"the prompt's {len(prompt)} tokens have {len(answer)} assistant turns: expected one at the end, with "
                f"its header of {HEADER} tokens (add_generation_prompt)"
            )
        read: list[int] = []
        for begin, end in zip(starts, [*starts[1:], len(prompt)], strict=True):
            if begin + 1 < end and prompt[begin + 1] == marks.user:
                read += range(begin, end)
        seen = [at for at in read if prompt[at] in marks.sights]
        if seen:
            raise SpeechUnsupported(
                f"the prompt has pictures or video at position {seen[0]}: speech is made for text and audio"
            )
        media = tuple(at for at in read if prompt[at] in marks.sound)
        return cls(tuple(read), media, range(answer[-1], answer[-1] + HEADER))
