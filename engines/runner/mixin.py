"""The phase contract on top of a stock V1 runner.

| what vLLM calls | what is added |
| --- | --- |
| `load_model` | the model's hooks are looked up, buffers are made, what cannot work is refused |
| `_preprocess` | rows go through the hooks; the forward pass reads embeddings |
| `_model_forward` | hidden states go to `postprocess` |
| `_on_request_state_removed` | a finished request's state is dropped |

A model without hooks costs one attribute look-up a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engines.runner.after import see
from engines.runner.errors import HookFailed, RuntimeUnsupported, error_of
from engines.runner.hooks import Hooks
from engines.runner.journal import Journal
from engines.runner.kept import Kept
from engines.runner.memory import EXTRA_ARGS, MAX_TOKENS, PHASED, SAMPLING_SEED, Memory
from engines.runner.mtp import Mtp, Taken
from engines.runner.rows import Row, rows_of
from engines.runner.runtime import check_model, check_runner
from engines.runner.step import Step

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as _Stock
else:
    _Stock = object

NOTHING: Mapping[str, Any] = MappingProxyType({})
SUBTALKER = "subtalker_sampling_params"
"""How MTP samples, in `--additional-config`: `do_sample`, `temperature`, `top_k`, `top_p`."""


class PhaseRunnerMixin(_Stock):
    """Stands before a stock `GPUModelRunner` (V1) or a subclass of it in the bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_runner(self)
        self.begin_phases()

    def begin_phases(self) -> None:
        """Empty state: nothing is loaded, no request is known."""
        self.hooks: Hooks | None = None
        self.mtp: Mtp | None = None
        self.kept: Kept | None = None
        self.model_intermediate_buffer: dict[str, Memory] = {}
        self.journal: Journal | None = None
        self._rows: list[Row] = []

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        self.attach_model()

    def attach_model(self) -> None:
        """Takes the hooks of `self.model`. Raises RuntimeUnsupported for a model or settings that cannot work."""
        hooks = self.hooks = Hooks.of(self.get_model())  # itself: what graphs are captured by may stand around it
        if hooks is None:
            return
        check_model(self, hooks)
        self.journal = Journal.from_environment()
        self.mtp = self._make_mtp(hooks) if hooks.mtp is not None else None
        rewinds = bool(self.vllm_config.scheduler_config.async_scheduling)
        self.kept = Kept(hooks, self.mtp, self.model_intermediate_buffer, rewinds=rewinds)

    def _make_mtp(self, hooks: Hooks) -> Mtp:
        config = self.vllm_config.model_config.hf_text_config
        sampling = (self.vllm_config.additional_config or {}).get(SUBTALKER) or {}
        if not isinstance(sampling, Mapping):
            raise RuntimeUnsupported(f"--additional-config: {SUBTALKER} is {sampling!r}; expected an object")
        return Mtp(
            hooks,
            make=self._make_phase_buffer,
            context=self.mtp_context,
            capacity=self.max_num_reqs,
            hidden=self.inputs_embeds.gpu.shape[1],
            width=hooks.mtp_width or config.hidden_size,
            sampling=sampling,
        )

    def _make_phase_buffer(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.zeros(*size, dtype=dtype or self.dtype, device=self.device)

    def mtp_context(self) -> AbstractContextManager[Any]:
        """What `talker_mtp` runs in."""
        return nullcontext()

    def _preprocess(
        self, scheduler_output: SchedulerOutput, num_input_tokens: int, intermediate_tensors: Any = None
    ) -> tuple[Any, ...]:
        ids, embeds, *others = super()._preprocess(scheduler_output, num_input_tokens, intermediate_tensors)
        if self.hooks is None:
            return (ids, embeds, *others)
        given = embeds is not None
        if embeds is None:
            embeds = self.inputs_embeds.gpu[:num_input_tokens]
        flat_ids = self.input_ids.gpu[:num_input_tokens] if ids is None else ids
        self._feed(scheduler_output, flat_ids, embeds, given)
        return (ids, embeds, *others)

    def _feed(self, scheduler_output: SchedulerOutput, ids: Tensor, embeds: Tensor, given: bool) -> None:
        hooks, kept, mtp, batch = self.hooks, self.kept, self.mtp, self.input_batch
        assert hooks is not None
        assert kept is not None
        order = batch.req_ids
        rows = self._rows = rows_of(
            order,
            self.requests,
            batch.num_computed_tokens_cpu[: len(order)].tolist(),
            self.query_start_loc.np[: len(order)].tolist(),
            scheduler_output.num_scheduled_tokens,
        )
        if mtp is not None:
            mtp.begin()
        if hooks.batch is not None:
            for row in rows:
                kept.fed_of(row)  # puts back what does not count any more, before a hook sees it
            self._prepare(hooks, kept, rows, ids.device)
        step = Step(hooks, mtp, kept, self._settings, self._sent, ids, embeds, given)
        step.feed(rows)
        codes = None
        if mtp is not None and mtp.taken.rows:
            codes = self._talker_mtp_forward(mtp.taken.requests, embeds)
        step.keep()
        if self.journal is not None:
            self.journal.write(rows, step.replayed, mtp.taken if mtp else Taken(), codes)

    def _talker_mtp_forward(
        self, decode_req_ids: Sequence[str], inputs_embeds: Tensor, start_offsets: Sequence[int] | None = None
    ) -> Tensor | None:
        """Runs MTP for the rows that were taken, `decode_req_ids`, and writes their `inputs_embeds` `[tokens, hidden]`.

        The name and its arguments are vLLM-Omni's. Returns the codes `[n, groups]`, None if the model gives none.
        """
        assert self.mtp is not None
        assert list(decode_req_ids) == self.mtp.taken.requests
        assert start_offsets is None or list(start_offsets) == self.mtp.taken.starts
        return self.mtp.run(self.mtp.taken, inputs_embeds)

    def _prepare(self, hooks: Hooks, kept: Kept, rows: Sequence[Row], device: torch.device) -> None:
        """`preprocess_batch`: it runs before any phase is known, so it sees none, not even the last step's.

        Every request has a memory by then, with what its sampling parameters say.
        """
        assert hooks.batch is not None
        for row in rows:
            memory = kept.memory_of(row)
            memory.update(self._settings(row.request))
            for key in PHASED:
                memory.pop(key, None)
        order = [row.request for row in rows]
        try:
            hooks.batch(req_ids=order, model_intermediate_buffer=self.model_intermediate_buffer, device=device)
        except Exception as e:
            raise error_of(HookFailed, hooks.model, rows, f"preprocess_batch raised {type(e).__name__}: {e}") from e

    def _settings(self, request: str) -> Memory:
        """What the request's sampling parameters say to its model."""
        params = self.requests[request].sampling_params
        if params is None:
            return {EXTRA_ARGS: {}, MAX_TOKENS: None, SAMPLING_SEED: None}
        return {EXTRA_ARGS: dict(params.extra_args or {}), MAX_TOKENS: params.max_tokens, SAMPLING_SEED: params.seed}

    def _sent(self, request: str) -> Mapping[str, Any]:
        """What the request's client sent for its model: to read."""
        params = self.requests[request].sampling_params
        return (params.extra_args if params is not None else None) or NOTHING

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super()._model_forward(*args, **kwargs)
        rows, self._rows = self._rows, []
        if rows and self.hooks is not None and self.hooks.postprocess is not None:
            assert self.kept is not None
            see(self.hooks, self.kept, rows, output[0] if isinstance(output, tuple) else output)
        return output

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        super()._on_request_state_removed(req_id, req_state)
        if self.hooks is None or self.kept is None:
            return
        self.kept.drop(req_id)
        if self.hooks.finished is None:
            return
        try:
            self.hooks.finished([req_id])
        except Exception as e:
            message = f"on_requests_finished raised {type(e).__name__}: {e}"
            raise HookFailed(message, model=self.hooks.model, requests=[req_id], rows=[None]) from e
