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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engines.runner.errors import HookFailed
from engines.runner.fed import Fed
from engines.runner.hooks import Hooks
from engines.runner.journal import Journal
from engines.runner.memory import RESERVED, merge
from engines.runner.mtp import Mtp, Taken
from engines.runner.rows import Row, rows_of
from engines.runner.runtime import check_model, check_runner
from engines.runner.step import Step

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as _Stock
else:
    _Stock = object


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
        self.model_intermediate_buffer: dict[str, dict[str, Any]] = {}
        self.fed: dict[str, Fed] = {}
        self.journal: Journal | None = None
        self._rows: list[Row] = []

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        self.attach_model()

    def attach_model(self) -> None:
        """Takes the hooks of `self.model`. Raises RuntimeUnsupported for a model or settings that cannot work."""
        hooks = self.hooks = Hooks.of(self.model)
        if hooks is None:
            return
        check_model(self, hooks)
        self.journal = Journal.from_environment()
        if hooks.mtp is None:
            return
        config = self.vllm_config.model_config.hf_text_config
        self.mtp = Mtp(
            hooks,
            make=self._make_phase_buffer,
            capacity=self.max_num_reqs,
            hidden=self.inputs_embeds.gpu.shape[1],
            width=int(getattr(self.model, "mtp_hidden_size", 0) or config.hidden_size),
            sampling=self.vllm_config.additional_config.get("subtalker_sampling_params", {}),
        )

    def _make_phase_buffer(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.zeros(*size, dtype=dtype or self.dtype, device=self.device)

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
        hooks, mtp, batch = self.hooks, self.mtp, self.input_batch
        assert hooks is not None
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
            self._prepare(order, ids.device)
        step = Step(hooks, mtp, self.fed, self.model_intermediate_buffer, self._extra_args, ids, embeds, given)
        step.feed(rows)
        codes = None
        if mtp is not None and mtp.taken.requests:
            codes = self._talker_mtp_forward(mtp.taken.requests, embeds, mtp.taken.starts)
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

    def _prepare(self, order: Sequence[str], device: torch.device) -> None:
        """`preprocess_batch`: it runs before any phase is known, so it sees none, not even the last step's."""
        hooks = self.hooks
        assert hooks is not None
        assert hooks.batch is not None
        for info in self.model_intermediate_buffer.values():
            for key in RESERVED:
                info.pop(key, None)
        try:
            hooks.batch(req_ids=list(order), model_intermediate_buffer=self.model_intermediate_buffer, device=device)
        except Exception as e:
            message = f"preprocess_batch raised {type(e).__name__}: {e}"
            raise HookFailed(message, model=hooks.model, requests=order, rows=range(len(order))) from e

    def _extra_args(self, request: str) -> dict[str, Any]:
        params = self.requests[request].sampling_params
        return dict(params.extra_args or {}) if params is not None else {}

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super()._model_forward(*args, **kwargs)
        rows, self._rows = self._rows, []
        if rows and self.hooks is not None and self.hooks.postprocess is not None:
            self._postprocess(rows, output[0] if isinstance(output, tuple) else output)
        return output

    def _postprocess(self, rows: Sequence[Row], hidden: Tensor) -> None:
        """Gives `hidden` `[tokens, hidden]` to the model, row by row.

        A replayed row that ends before the newest position seen is left out: it would put an older state over a newer.
        """
        hooks = self.hooks
        assert hooks is not None
        assert hooks.postprocess is not None
        for row in rows:
            fed, info = self.fed[row.request], self.model_intermediate_buffer[row.request]
            if row.phase.end - 1 < fed.hidden_at:
                continue
            fed.hidden_at = row.phase.end - 1
            known = {key: value for key, value in info.items() if key != "hidden_states"}
            try:
                updates = hooks.postprocess(
                    hidden[row.start : row.start + row.phase.span], multimodal_outputs=None, **known
                )
            except Exception as e:
                message = f"postprocess raised {type(e).__name__}: {e}"
                raise HookFailed(message, model=hooks.model, requests=[row.request], rows=[row.index]) from e
            merge(info, updates, hooks.on_device)

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        super()._on_request_state_removed(req_id, req_state)
        if self.hooks is None:
            return
        if self.hooks.finished is not None:
            self.hooks.finished([req_id])
        self.model_intermediate_buffer.pop(req_id, None)
        self.fed.pop(req_id, None)
        if self.mtp is not None:
            self.mtp.forget(req_id)
