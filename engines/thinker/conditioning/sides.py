"""The rows of both sides of a split, joined into those of an unsplit engine: for models that read every position.

Only streams of engines with `DUET_CONDITIONING=all` have them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from common.channel.frame import Frame
from common.conditioning import EMBEDDING, HIDDEN, ConditioningInvalid
from common.merge import merge
from engines.channel import to_tensor

Side = dict[str, Tensor]
"""`embedding` and `hidden`, `[rows, width]` each: what one engine computed, up to where it ended."""


def side(frames: Sequence[Frame]) -> Side:
    """One stream's rows. Raises ConditioningInvalid if a frame has none: another `DUET_CONDITIONING`."""
    for frame in frames:
        if not {EMBEDDING, HIDDEN} <= set(frame.rows):
            raise ConditioningInvalid(f"channel frame {frame.index} has {sorted(frame.rows)}: expected every row")
    return {name: torch.cat([to_tensor(frame.rows[name]) for frame in frames]) for name in (EMBEDDING, HIDDEN)}


def joined(prefill: Side, decode: Side, total: int) -> Side:
    """Rows of `total` positions: the prompt's, and of all that was said but the last sampled id.

    Raises MergeInvalid where rows are missing or too many, and never cuts or fills to fit.
    """
    return {name: torch.cat(parts) for name, parts in merge(prefill, decode, total).items()}
