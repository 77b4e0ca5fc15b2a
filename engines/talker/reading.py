"""Rows that the Talker reads: the Thinker's ids and hidden states, projected to its own width. Plain torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from engines.channel import to_tensor
from engines.talker.conditioning import Conditioning
from engines.talker.errors import SpeechUnsupported
from engines.talker.feed import Silence
from engines.talker.script import MARKS, Script


class _Projection(nn.Module):
    """From the Thinker's width to the Talker's; names as in the checkpoint."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        text = config.text_config
        self.linear_fc1 = nn.Linear(config.thinker_hidden_size, text.intermediate_size)
        self.linear_fc2 = nn.Linear(text.intermediate_size, text.hidden_size)

    def forward(self, rows: Tensor) -> Tensor:
        return self.linear_fc2(F.silu(self.linear_fc1(rows)))


class Reader(nn.Module):
    """`text_embedding` is the Thinker's own table, so a text row is the same as the Thinker's, from its id alone."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config
        self.text_embedding = nn.Embedding(config.thinker_vocab_size, config.thinker_hidden_size)
        self.text_projection = _Projection(config)
        self.hidden_projection = _Projection(config)

    @property
    def device(self) -> torch.device:
        return self.text_embedding.weight.device

    def text(self, ids: list[int | Silence]) -> Tensor:
        """Rows of text tokens, and of what is read when there is none: `[n, hidden]`."""
        silent = {Silence.EOS: self._config.tts_eos_token_id, Silence.PAD: self._config.tts_pad_token_id}
        known = [silent[i] if isinstance(i, Silence) else i for i in ids]
        return self.text_projection(self.text_embedding(torch.tensor(known, device=self.device)))

    def speaker(self, name: str) -> int:
        """Its codec id. Raises SpeechUnsupported."""
        speakers = self._config.speaker_id
        if name.lower() not in speakers:
            raise SpeechUnsupported(f"speaker is {name!r}: expected one of {', '.join(sorted(speakers))}")
        return int(speakers[name.lower()])

    def marks(self, speaker: str) -> list[int]:
        """The codec ids that stand under the prompt's last positions."""
        c = self._config
        return [
            c.codec_nothink_id,
            c.codec_think_bos_id,
            c.codec_think_eos_id,
            self.speaker(speaker),
            c.codec_pad_id,
            c.codec_bos_id,
        ]

    def prompt(self, script: Script, conditioning: Conditioning, codec: Tensor) -> Tensor:
        """All rows of the Talker's prompt, `[script.length, hidden]`; `codec` `[6, hidden]` are the rows of `marks`."""
        ids, config = conditioning.ids, self._config
        at = [*script.read, *script.header]
        lead = [config.tts_pad_token_id] * (MARKS - 2) + [config.tts_bos_token_id, ids[script.text_from]]
        rows = self.text([*(ids[i] for i in at), *lead])
        if script.media:
            place = {position: row for row, position in enumerate(at)}
            where = torch.tensor([place[position] for position in script.media], device=self.device)
            rows[where] = self.hidden_projection(self._heard(script, conditioning)).to(rows.dtype)
        rows[-MARKS:] += codec
        return rows

    def _heard(self, script: Script, conditioning: Conditioning) -> Tensor:
        """Hidden states at the script's media positions, `[media, thinker hidden]`."""
        tensors = {id(rows): to_tensor(rows) for rows, _ in (conditioning.media[at] for at in script.media)}
        found = [tensors[id(rows)][row] for rows, row in (conditioning.media[at] for at in script.media)]
        return torch.stack(found).to(device=self.device, dtype=self.text_embedding.weight.dtype)
