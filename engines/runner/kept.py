"""All that is kept between steps: what models remember of their requests, and what decode has fed for each."""

from __future__ import annotations

from typing import Any

from engines.runner.errors import HookFailed, HookResultInvalid, RewindLost, error_of
from engines.runner.fed import KEPT, Fed, Moment
from engines.runner.hooks import Hooks
from engines.runner.memory import Memory, copied
from engines.runner.mtp import Mtp
from engines.runner.pool import RowPool
from engines.runner.rows import Row


class Kept:
    """By request. `memories` is vLLM-Omni's `model_intermediate_buffer`: models get it, and may put dicts in."""

    def __init__(self, hooks: Hooks, mtp: Mtp | None, memories: dict[str, Memory], *, rewinds: bool) -> None:
        """`rewinds`: steps are scheduled before it is known what the last one said, so what decode has fed may turn out
        not to count. Without that vLLM takes nothing back that was fed."""
        self._hooks = hooks
        self.rewinds = rewinds
        self._mtp = mtp
        self.memories = memories
        self.fed: dict[str, Fed] = {}
        self.pool = RowPool()

    def memory_of(self, row: Row) -> Memory:
        """Raises HookResultInvalid where a model put in something that is no dict."""
        found: Any = self.memories.get(row.request)
        if found is None:
            found = self.memories[row.request] = {}
        elif not isinstance(found, dict):
            message = f"preprocess_batch left {type(found).__name__} as the request's memory; expected a dict"
            raise error_of(HookResultInvalid, self._hooks.model, [row], message)
        return found

    def fed_of(self, row: Row) -> Fed:
        """What decode has fed for the row's request, without what does not count any more. Raises RewindLost."""
        fed = self.fed.get(row.request)
        if fed is None:
            fed = self.fed[row.request] = Fed()
        if row.phase.prompt_len != fed.prompt_len or fed.until > row.phase.num_tokens:
            taken_back = fed.taken_back(row.phase)
            if taken_back is not None:
                self._rewind(row, fed, taken_back)
        return fed

    def begin(self, row: Row, fed: Fed, memory: Memory) -> None:
        """The row is about to be decoded: what its model remembers now, it may have to remember again."""
        generator = self._mtp.generators.state(row.request) if self._mtp is not None else None
        fed.begin(Moment(row.phase.num_computed, copied(memory), fed.hidden_at, fed.unseen, generator))

    def drop(self, request: str) -> None:
        """The request has finished."""
        self.memories.pop(request, None)
        fed = self.fed.pop(request, None)
        if fed is not None:
            self.pool.free(fed.all_slots())
        if self._mtp is not None:
            self._mtp.generators.forget(request)

    def _rewind(self, row: Row, fed: Fed, start: int) -> None:
        """Makes the request what it was before decode fed `start`; its model may have more to put right."""
        until = fed.until
        moment, free = fed.forget(start)
        self.pool.free(free)
        if moment is None:
            message = (
                f"of positions up to {until - 1}, which decode has fed, those from {start} on do not count any more; "
                f"expected {f'at most the last {KEPT} steps' if self.rewinds else 'none, without async scheduling'}: "
                f"what the model remembered before them is not known: {row.phase}"
            )
            raise error_of(RewindLost, self._hooks.model, [row], message)
        memory = self.memory_of(row)
        memory.clear()
        memory.update(moment.memory)
        if self._mtp is not None:
            self._mtp.generators.restore(row.request, moment.generator)
        if self._hooks.taken_back is None:
            return
        try:
            self._hooks.taken_back(row.request, start)
        except Exception as e:
            message = f"on_tokens_taken_back raised {type(e).__name__}: {e}"
            raise error_of(HookFailed, self._hooks.model, [row], message) from e
