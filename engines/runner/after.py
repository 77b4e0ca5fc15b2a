"""Behind the forward pass: hidden states go to the model's `postprocess`, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from engines.runner.errors import HookFailed, HookResultInvalid, error_of
from engines.runner.hooks import Hooks
from engines.runner.kept import Kept
from engines.runner.memory import Memory, merge, tell
from engines.runner.mtp import described
from engines.runner.rows import Row


def see(hooks: Hooks, kept: Kept, rows: Sequence[Row], hidden: Tensor) -> None:
    """Gives `hidden` `[tokens, hidden]` to the model. Raises HookFailed, HookResultInvalid.

    A replayed row that ends before the newest position seen is left out: it would put an older state over a newer.
    """
    own = hidden[: rows[-1].stop].split([row.phase.span for row in rows])
    for row, states in zip(rows, own, strict=True):
        fed, newest = kept.fed[row.request], row.phase.end - 1
        if newest < fed.hidden_at:
            continue
        fed.hidden_at = newest
        _postprocess(hooks, row, states if hooks.postprocess_of_row else hidden, kept.memory_of(row))


def _postprocess(hooks: Hooks, row: Row, hidden: Tensor, info: Memory) -> None:
    """One row, told as a whole: what stands in `info` may be the phase of a part of it, or of an earlier one."""
    assert hooks.postprocess is not None
    known: Memory = {}
    if hooks.postprocess_takes_info:
        known = info.copy()
        known.pop("hidden_states", None)  # vLLM-Omni's hooks may call their first argument so
        tell(known, row)
    try:
        updates = hooks.postprocess(hidden, multimodal_outputs=None, **known)
    except Exception as e:
        message = f"postprocess raised {type(e).__name__}: {e}"
        raise error_of(HookFailed, hooks.model, [row], message) from e
    if updates is None:
        return
    if not isinstance(updates, (dict, Mapping)):  # a dict is told at once
        message = f"postprocess returned {described(updates)}; expected updates or None"
        raise error_of(HookResultInvalid, hooks.model, [row], message)
    try:
        merge(info, updates, hooks.on_device)
    except ValueError as e:
        raise error_of(HookResultInvalid, hooks.model, [row], f"updates of postprocess: {e}") from None
