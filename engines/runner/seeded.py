"""Seeded requests whose prompts come in chunks, on CPUs.

A chunk that does not end its prompt is sampled all the same, and the token dropped. vLLM then takes the draw back from
the request's generator, by an offset that torch's CPU generators do not have: the engine would end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as _Stock
else:
    _Stock = object


class SeededDraws(_Stock):
    """Stands before a V1 runner in the bases. What is dropped is not drawn from a request's own generator at all."""

    def sample_tokens(self, *args: Any, **kwargs: Any) -> Any:
        batch = self.input_batch
        dropped = self.discard_request_mask.np[: batch.num_reqs].nonzero()[0].tolist()
        held = {at: batch.generators.pop(at) for at in dropped if at in batch.generators}
        try:
            return super().sample_tokens(*args, **kwargs)
        finally:
            batch.generators.update(held)
