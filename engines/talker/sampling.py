"""Choosing codes of groups 1 to 15, each row by its own request's settings and with its own generator.

A row's random numbers come from its generator alone, so a seeded request draws the same whoever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engines.talker.request import Residual

COLDEST = 0.01
"""What is colder is as this, as in vLLM: dividing by next to nothing gives no number."""


class Chooser:
    """For the rows of one call; `generators` are aligned with `rows`, None draws from torch's own."""

    def __init__(
        self, rows: Sequence[Residual], generators: Sequence[torch.Generator | None], device: torch.device
    ) -> None:
        self._sampled = [at for at, row in enumerate(rows) if row.temperature > 0]
        self._generators = [generators[at] for at in self._sampled]
        if not self._sampled:
            return
        chosen = [rows[at] for at in self._sampled]
        column = (len(chosen), 1)
        self._at = torch.tensor(self._sampled, device=device)
        self._temperature = torch.tensor([max(r.temperature, COLDEST) for r in chosen], device=device).reshape(column)
        self._top_k = torch.tensor([r.top_k or 2**31 - 1 for r in chosen], device=device).reshape(column)
        self._top_p = torch.tensor([r.top_p for r in chosen], device=device).reshape(column)

    def __call__(self, logits: Tensor) -> Tensor:
        """`[n, codes]` -> `[n]` int64."""
        chosen = logits.argmax(dim=-1)
        if self._sampled:
            chosen[self._at] = self._draw(logits[self._at].float())
        return chosen

    def _draw(self, logits: Tensor) -> Tensor:
        """Temperature, then `top_k`, then `top_p`: the smallest set of likeliest codes that has that much of the
        probability. Dividing by exponential noise and taking the largest draws from what is left."""
        scaled, order = (logits / self._temperature).sort(dim=-1, descending=True)
        rank = torch.arange(scaled.shape[-1], device=scaled.device)
        scaled = scaled.masked_fill(rank >= self._top_k, -torch.inf)
        likely = scaled.softmax(dim=-1)
        before = likely.cumsum(dim=-1) - likely
        likely = likely.masked_fill((before >= self._top_p) & (rank > 0), 0.0)
        noise = torch.empty_like(likely)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return order.gather(-1, (likely / noise).argmax(dim=-1, keepdim=True)).squeeze(-1)
