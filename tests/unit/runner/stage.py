"""A runner without an engine: CPU buffers, a batch that a test lays out, and the production methods on top.

`Stock` has what the mixin reads of vLLM's V1 runner, so these tests run without vLLM too. Where vLLM is installed the
same tests run on its own `_preprocess` (see `conftest.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engines.runner.mixin import PhaseRunnerMixin
from tests.unit.runner.talker import HIDDEN, Talker

TOKENS = 256
"""Room in the flat buffers."""
STALE = 77.0
"""What the embedding buffer is full of: a row that nobody wrote is seen."""


class Buffer:
    """vLLM's CpuGpuBuffer on a CPU: one tensor under three names."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.cpu = self.gpu = tensor
        self.np = tensor.numpy()


class Stock:
    """What a stock V1 runner does for a text model."""

    def get_model(self) -> Any:
        return self.model

    def _preprocess(self, scheduler_output: Any, num_input_tokens: int, intermediate_tensors: Any = None) -> Any:
        ids, embeds = self.input_ids.gpu[:num_input_tokens], None
        if self.enable_prompt_embeds:
            ids, embeds = None, self.inputs_embeds.gpu[:num_input_tokens]
        return ids, embeds, self.positions[:num_input_tokens], None, {}, None

    def _model_forward(self, **inputs: Any) -> Any:
        return self.model(**inputs)

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        pass


class FakeRunner(PhaseRunnerMixin, Stock):
    pass


@dataclass
class Request:
    """vLLM's CachedRequestState, as far as it is read. `ids` are the prompt's, `output` what was sampled so far."""

    ids: list[int]
    output: list[int] = field(default_factory=list)
    extra_args: dict[str, Any] | None = None
    seed: int | None = None
    max_tokens: int | None = 16
    drafts: list[int] = field(default_factory=list)
    """Ids that stand behind those that were sampled, verified by nobody."""
    by_embeddings: bool = False
    """Its prompt came as embeddings alone: vLLM knows no ids of it, only how many there are."""

    @property
    def prompt_token_ids(self) -> list[int] | None:
        return None if self.by_embeddings else self.ids

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.output

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(extra_args=self.extra_args, seed=self.seed, max_tokens=self.max_tokens)

    def token(self, position: int) -> int:
        return [*self.ids, *self.output, *self.drafts][position]


@dataclass(frozen=True)
class Ran:
    """What one step left: embeddings `[span, hidden]` by request, and the runner's answer."""

    embeds: Mapping[str, torch.Tensor]
    answer: tuple[Any, ...]


class Stage:
    """Runs steps that a test lays out."""

    def __init__(self, runner_class: type = FakeRunner, model: Any = None, *, prompt_embeds: bool = False) -> None:
        self.model = model if model is not None else Talker()
        runner = self.runner = object.__new__(runner_class)
        runner.model = self.model
        runner.device = torch.device("cpu")
        runner.dtype = torch.float32
        runner.max_num_reqs = 64
        runner.vllm_config = config()
        runner.model_config = SimpleNamespace(is_encoder_decoder=False)
        runner.speculative_config = None
        runner.supports_mm_inputs = runner.uses_mrope = False
        runner.enable_prompt_embeds = prompt_embeds
        runner._init_model_kwargs = dict
        runner.input_ids = Buffer(torch.zeros(TOKENS, dtype=torch.int32))
        runner.inputs_embeds = Buffer(torch.zeros(TOKENS, HIDDEN))
        runner.is_token_ids = Buffer(torch.zeros(TOKENS, dtype=torch.bool))
        runner.positions = torch.zeros(TOKENS, dtype=torch.int64)
        runner.query_start_loc = Buffer(torch.zeros(65, dtype=torch.int32))
        runner.requests = {}
        runner.begin_phases()
        runner.attach_model()

    @property
    def requests(self) -> dict[str, Request]:
        return self.runner.requests

    def codes(self, request: str) -> list[int] | None:
        """A request's newest codes, as a model's next step would see them."""
        found = self.runner.model_intermediate_buffer.get(request, {}).get("codes")
        return None if found is None else found["audio"][0].tolist()

    def lay_out(self, rows: Sequence[tuple[str, int, int]]) -> Any:
        """A step of `(request, computed, span)`, in the batch's order. Returns vLLM's SchedulerOutput for it."""
        runner = self.runner
        names = [name for name, _, _ in rows]
        spans = {name: span for name, _, span in rows}
        runner.input_batch = SimpleNamespace(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            num_computed_tokens_cpu=np.array([computed for _, computed, _ in rows]),
            req_prompt_embeds={},
        )
        starts = np.cumsum([0, *spans.values()])
        runner.query_start_loc.np[: len(starts)] = starts
        runner.inputs_embeds.gpu.fill_(STALE)
        for (name, computed, span), start in zip(rows, starts, strict=False):
            for k in range(span):
                runner.input_ids.gpu[start + k] = self.requests[name].token(computed + k)
                runner.positions[start + k] = computed + k
        return SimpleNamespace(
            total_num_scheduled_tokens=int(starts[-1]),
            num_scheduled_tokens=dict(sorted(spans.items())),  # by name: not the batch's order
            scheduled_encoder_inputs={},
        )

    def step(self, *rows: tuple[str, int, int], pad: int = 0) -> Ran:
        """Runs `_preprocess` and the forward pass, as `execute_model` does; `pad` tokens of padding behind the rows."""
        scheduled = self.lay_out(rows)
        tokens = scheduled.total_num_scheduled_tokens + pad
        with torch.inference_mode():
            answer = self.runner._preprocess(scheduled, tokens)
            ids, embeds, positions, *_ = answer
            hidden = self.runner._model_forward(
                input_ids=ids, positions=positions, intermediate_tensors=None, inputs_embeds=embeds
            )
        assert hidden.shape[0] == tokens
        starts = self.runner.query_start_loc.np
        return Ran(
            embeds={name: embeds[starts[i] : starts[i] + span].clone() for i, (name, _, span) in enumerate(rows)},
            answer=answer,
        )

    def finish(self, request: str) -> None:
        self.runner._on_request_state_removed(request, self.requests.pop(request))


def config(**changes: Any) -> Any:
    """A VllmConfig, as far as it is read."""
    return SimpleNamespace(
        cache_config=SimpleNamespace(enable_prefix_caching=changes.get("cached", False)),
        parallel_config=SimpleNamespace(pipeline_parallel_size=changes.get("stages", 1)),
        speculative_config=changes.get("speculative"),
        model_config=SimpleNamespace(
            enforce_eager=changes.get("eager", True), hf_text_config=SimpleNamespace(hidden_size=HIDDEN)
        ),
        additional_config=changes.get("additional", {}),
        scheduler_config=SimpleNamespace(async_scheduling=changes.get("asynchronous", True)),
    )
