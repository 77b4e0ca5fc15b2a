"""Behind the forward pass: hidden states go to the model's `postprocess`, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from engines.runner.errors import HookFailed, HookResultInvalid, error_of
from engines.runner.hooks import Hooks
from engines.runner.kept import Kept
from engines.runner.memory import Memory, copied, merge, tell
from engines.runner.mtp import described
from engines.runner.rows import Row


def see(hooks: Hooks, kept: Kept, rows: Sequence[Row], hidden: Tensor) -> None:
    """Gives `hidden` `[tokens, hidden]` to the model. Raises HookFailed, HookResultInvalid.

    A replayed row that ends before the newest position seen is left out: it would put an older state over a newer. The
    newest is seen once more if it is computed again (its first hidden state may have come from KV that failed to load):
    what the model made of it then is put back first, so that nothing is counted twice.
    """
    for row in rows:
        fed, newest = kept.fed[row.request], row.phase.end - 1
        if newest < fed.hidden_at:
            continue
        info = kept.memory_of(row)
        if newest == fed.hidden_at:
            info.clear()
            info.update(copied(fed.unseen))
        else:
            fed.unseen = copied(info)
        shown = row if newest < row.phase.prompt_len else _spoken(row, fed.hidden_at)
        fed.hidden_at = newest
        states = hidden[shown.start : shown.stop] if hooks.postprocess_of_row else hidden
        _postprocess(hooks, shown, states, info)


def _spoken(row: Row, hidden_at: int) -> Row:
    """Of a row that ends behind the prompt, what decode has not shown yet: its last position, or what is new of it."""
    phase = row.phase
    start = max(phase.num_computed, phase.prompt_len, min(hidden_at + 1, phase.end - 1))
    return row if start == phase.num_computed else row.part(phase.from_position(start))


def _postprocess(hooks: Hooks, row: Row, hidden: Tensor, info: Memory) -> None:
    """What stands in `info` may be the phase of another part of the row, or of an earlier one: it is told afresh."""
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
    except (ValueError, RuntimeError) as e:
        raise error_of(HookResultInvalid, hooks.model, [row], f"updates of postprocess: {e}") from e
