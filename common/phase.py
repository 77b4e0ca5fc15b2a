"""The contract between runner and model: is a row prompt or decode? Nothing else decides it, anywhere.

A **row** is what the scheduler gives one request in one step. Four numbers say all of it:

    positions   0 . . . . . . . . . prompt_len . . . . . . num_tokens
                      |<-- span -->|
                num_computed

It is **prefill** exactly when `num_computed < prompt_len`, whatever its span: a one-token row can be a whole prompt,
the tail of a prompt that came in chunks (or from another engine), or a decode step. The phase is worked out afresh for
each row; nothing keeps it.

| prompt_len | num_computed | span | num_tokens | phase | MTP |
| --- | --- | --- | --- | --- | --- |
| 5 | 0 | 4 | 5 | prefill | no |
| 5 | 4 | 1 | 5 | prefill: the tail | no |
| 5 | 5 | 1 | 6 | decode | yes |
| 5 | 6 | 1 | 7 | decode | yes |
| 1 | 0 | 1 | 1 | prefill | no |
| 5 | 5 | 2 | 6 | decode | no: more than one token |
| 5 | 5 | 1 | 8 | decode, replayed | no: it was fed before |

A row that starts in the prompt and runs past it (after a preemption) is prefill too. `PhaseInfo.cut` says what each of
its positions is.

The key names and their meanings are vLLM-Omni's (issue 4382, pull 3662), so that one model runs on both.
"""

from __future__ import annotations

from typing import NamedTuple

CONTRACT_VERSION = "1"
"""Grows when a key changes its meaning or goes."""

PROMPT_LEN = "_omni_prompt_len"
"""int: tokens in the request's current prompt, not in the chunk."""
NUM_COMPUTED = "_omni_num_computed_tokens"
"""int: tokens whose KV was there before this row, cached ones included."""
IS_PREFILL = "_omni_is_prefill"
"""bool: exactly `NUM_COMPUTED < PROMPT_LEN`."""
KEYS = (PROMPT_LEN, NUM_COMPUTED, IS_PREFILL)


class PhaseInfo(NamedTuple):
    """One row. All four are tokens. A tuple, because one is made for every row of every step.

    `num_tokens` is how many tokens of the request are known: its prompt and what was sampled so far. Drafts that
    nobody has verified are not among them, so a row may end behind it.
    """

    prompt_len: int
    num_computed: int
    span: int
    num_tokens: int

    @classmethod
    def of(cls, prompt_len: int, num_computed: int, span: int, num_tokens: int) -> PhaseInfo:
        """The same, checked: raises ValueError for numbers that no row can have."""
        if prompt_len < 0 or num_computed < 0 or span < 1 or num_tokens < prompt_len:
            raise ValueError(
                f"row (prompt_len {prompt_len}, num_computed {num_computed}, span {span}, num_tokens {num_tokens}): "
                "expected prompt_len and num_computed from 0, span from 1, num_tokens from prompt_len"
            )
        return cls(prompt_len, num_computed, span, num_tokens)

    @property
    def end(self) -> int:
        """The position behind the row's last."""
        return self.num_computed + self.span

    @property
    def is_prefill(self) -> bool:
        return self.num_computed < self.prompt_len

    @property
    def is_replay(self) -> bool:
        """Whether all of it was fed before: a token behind it was sampled, which only a row that fed it can have done.

        A prompt's first chunk also ends before the newest known token, and is none: nothing was sampled yet.
        """
        return self.num_computed + self.span < self.num_tokens > self.prompt_len

    @property
    def mtp_eligible(self) -> bool:
        """Whether the runner's multi-token prediction may take the row: one new token of decode."""
        return self.span == 1 and not self.is_prefill and not self.is_replay

    @property
    def batched_decode_eligible(self) -> bool:
        """Whether `preprocess_decode_batch` may take the row, in a model that has that hook.

        As in vLLM-Omni 0.30, and unlike its description of the contract, `talker_mtp` need not be there: the hook then
        returns no inputs for it.
        """
        return self.mtp_eligible

    def keys(self) -> dict[str, int | bool]:
        """What a model's hook is told."""
        return {PROMPT_LEN: self.prompt_len, NUM_COMPUTED: self.num_computed, IS_PREFILL: self.is_prefill}

    def cut(self, fed_until: int) -> Cut:
        """The row's parts. Positions from the prompt's end to `fed_until` have been fed as decode before.

        A row inside the prompt is one prompt part, a decode step one new part. After a preemption all of a request is
        computed again, in chunks that know nothing of where its prompt ended; decode-only state must not move there.
        """
        end = self.end
        past_prompt = max(self.num_computed, self.prompt_len)
        new = max(past_prompt, min(fed_until, end))
        return Cut(
            prompt=self._part(self.num_computed, min(end, self.prompt_len)),
            replayed=range(past_prompt, new),
            new=self._part(new, end),
        )

    def from_position(self, start: int) -> PhaseInfo:
        """The row's part from `start` on, a position in it."""
        return PhaseInfo(self.prompt_len, start, self.end - start, self.num_tokens)

    def _part(self, start: int, end: int) -> PhaseInfo | None:
        return PhaseInfo(self.prompt_len, start, end - start, self.num_tokens) if start < end else None


class Cut(NamedTuple):
    """A row's parts, in the order of their positions; together they are the row.

    `prompt` and `new` go to the model's hooks, each a row of its own by this contract. `replayed` are absolute
    positions: their rows are fed again as they were, without a hook and without MTP.
    """

    prompt: PhaseInfo | None
    replayed: range
    new: PhaseInfo | None
