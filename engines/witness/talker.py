"""What the witness speaks with. Plain torch: no vLLM, so that its rules can be tested on their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROUPS = 16
"""Codes in a frame: group 0 is the sampled token, the others come from the MTP."""
CODES = 64
"""Different codes in each of the groups 1 to 15."""
TEXT_ROWS = 256
PLACES = 512


class Talker(nn.Module):
    """Embeddings and MTP over rows of width `hidden`; all results have the weights' dtype."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.prompt = nn.Embedding(vocabulary, hidden)
        self.place = nn.Embedding(PLACES, hidden)
        self.codec = nn.Embedding(vocabulary, hidden)
        self.text = nn.Embedding(TEXT_ROWS, hidden)
        self.mixers = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(GROUPS - 1))
        self.heads = nn.ModuleList(nn.Linear(hidden, CODES, bias=False) for _ in range(GROUPS - 1))
        self.groups = nn.ModuleList(nn.Embedding(CODES, hidden) for _ in range(GROUPS - 1))

    def prompt_rows(self, ids: Tensor, offset: int) -> Tensor:
        """The prompt's embeddings from `offset` on, `[len(ids), hidden]`: a slice from the wrong place is another
        prompt."""
        places = torch.arange(offset, offset + ids.shape[0], device=ids.device) % PLACES
        return self.prompt(ids) + self.place(places)

    def codec_rows(self, ids: Tensor) -> Tensor:
        """Embeddings of sampled ids, from a table of their own: a prompt row taken for a decode row is another."""
        return self.codec(ids)

    def text_rows(self, steps: Tensor) -> Tensor:
        """The text rows of these steps (`[n]`, any integers), `[n, hidden]`."""
        return self.text(steps % TEXT_ROWS)

    def predict(self, ids: Tensor, embeds: Tensor, last_hidden: Tensor, text_step: Tensor) -> tuple[Tensor, Tensor]:
        """One frame a row. `ids` `[n]`, the others `[n, hidden]`; returns the rows to feed, `[n, hidden]`, and the
        frames, `[n, 16]` int64. Each group is chosen greedily after those before it."""
        codes = [ids.long()]
        total = embeds
        thought = last_hidden + embeds
        for mixer, head, group in zip(self.mixers, self.heads, self.groups, strict=True):
            thought = torch.tanh(mixer(thought))
            code = head(thought).argmax(dim=-1)
            row = group(code)
            codes.append(code)
            total = total + row
            thought = thought + row
        return total + text_step, torch.stack(codes, dim=1)
