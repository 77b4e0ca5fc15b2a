"""Steps that are put before both runners, and what is compared of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from engines.runner.fed import Fed
from engines.runner.kept import Kept
from tests.unit.runner.stage import Request, Stage
from tests.unit.runner.talker import HIDDEN, Talker

Case = tuple[tuple[int, int, int], ...]
"""Rows of one step: prompt length, computed before, span."""

TABLE: tuple[Case, ...] = (((5, 0, 4),), ((5, 4, 1),), ((5, 5, 1),), ((5, 6, 1),), ((1, 0, 1),), ((5, 5, 2),))
MIXED: tuple[Case, ...] = (
    ((5, 4, 1), (5, 5, 1)),
    ((5, 5, 1), (5, 4, 1)),
    ((5, 5, 1), (5, 0, 3), (5, 7, 1)),
    ((1, 0, 1), (1, 1, 1), (1, 2, 1)),
    ((3, 3, 1), (4, 9, 1), (2, 2, 1), (9, 8, 1), (6, 6, 1)),
    ((8, 2, 6), (5, 5, 2), (5, 5, 1), (5, 6, 1)),
)
CASES = (*TABLE, *MIXED)


def _has_fed(kept: Kept, request: str, prompt_len: int, computed: int) -> None:
    """As if decode had fed all that was computed behind the prompt. The rows are not looked at: none is fed again."""
    fed = kept.fed[request] = Fed()
    fed.prompt_len = prompt_len
    for position in range(prompt_len, computed):
        (slot,) = kept.pool.put(torch.zeros(1, HIDDEN), torch.zeros(1, dtype=torch.int32), [0])
        fed.keep(position, slot)


def told(stage: Stage, case: Case) -> dict[str, Any]:
    """Runs the step's `_preprocess`. Returns, as JSON has it, what the model was told, what was fed and what was said.

    A row's request remembers as many decode steps as it must have had, and ours is told that it has fed them. What a
    decode row has beyond its first token is draft: known are as many tokens as were sampled.
    """
    model: Talker = stage.model
    names = [f"r{i}" for i in range(len(case))]
    for i, (name, (prompt_len, computed, span)) in enumerate(zip(names, case, strict=True)):
        sampled = max(0, computed + 1 - prompt_len)
        request = Request([10 * i + k for k in range(prompt_len)], [100 + i + k for k in range(sampled)])
        request.drafts = [100 + i + k for k in range(sampled, computed + span - prompt_len)]
        stage.requests[name] = request
        _has_fed(stage.runner.kept, name, prompt_len, computed)
        stage.runner.model_intermediate_buffer[name] = {
            "last": torch.full((1, HIDDEN), 31.0 + i),
            "steps": max(0, computed - prompt_len),
            "_omni_is_prefill": "stale",
            "sampling_extra_args": {},
        }
    rows = [(name, computed, span) for name, (_, computed, span) in zip(names, case, strict=True)]
    scheduled = stage.lay_out(rows)
    scheduled.scheduled_new_reqs, scheduled.scheduled_cached_reqs = [], object()
    _, embeds, *_ = stage.runner._preprocess(scheduled, scheduled.total_num_scheduled_tokens)
    return {
        "calls": [[*dataclasses.astuple(call)[:-1], list(call.ids)] for call in model.calls],
        "groups": model.groups,
        "mtp": model.mtp_batches,
        "fed": embeds.tolist(),
        "codes": [stage.codes(name) for name in names],
    }
