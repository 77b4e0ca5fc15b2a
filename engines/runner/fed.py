"""What decode has fed for one request, kept until it finishes: after a preemption the same rows are fed again."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from common.phase import PhaseInfo


class Fed:
    """The decode rows of one request, by absolute position, and its newest hidden state's position.

    A row of a decode step can be no function of its token: MTP sums codes that are sampled once. So it is kept as it
    was fed. Rows of one step share a tensor `[n, hidden]`, and each is kept as its place in it.
    """

    __slots__ = ("_rows", "hidden_at", "prompt_len", "until")

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Tensor, int]] = {}
        self.prompt_len = -1
        self.until = 0
        """The position behind the last one that decode has fed; 0 before the first."""
        self.hidden_at = -1
        """The position whose hidden state the model saw last."""

    def meet(self, phase: PhaseInfo) -> None:
        """Forgets what the request's current state says was not fed.

        A prompt that was replaced (streaming input folds outputs in) goes on behind what was computed: a token that
        was fed there since, and then dropped, is no more. Nor are tokens that vLLM took back.
        """
        if phase.prompt_len != self.prompt_len:
            if self.prompt_len >= 0 and self.until > phase.num_computed:
                self._forget(phase.num_computed)
            self.prompt_len = phase.prompt_len
        if self.until > phase.num_tokens:
            self._forget(phase.num_tokens)

    def keep(self, position: int, tensor: Tensor, place: int) -> None:
        self._rows[position] = (tensor, place)
        self.until = max(self.until, position + 1)

    def known(self, positions: Iterable[int]) -> list[int]:
        """Those of `positions` that have been fed."""
        return [p for p in positions if p in self._rows]

    def rows(self, positions: Iterable[int]) -> Tensor:
        """The rows at `positions`, all of them known: `[n, hidden]`."""
        return torch.stack([tensor[place] for tensor, place in (self._rows[p] for p in positions)])

    def _forget(self, start: int) -> None:
        for position in [p for p in self._rows if p >= start]:
            del self._rows[position]
        self.until = max(self._rows, default=-1) + 1
