"""Hidden states at some layers of a vLLM model, by the switch that its drafting models use.

Layer k is the input of layer k, which is transformers' `hidden_states[k]`; layer 0 is the embedding.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engines.runner.errors import RuntimeUnsupported


class Listener:
    """Where the model runs as it is written, layers are listened to only in steps that want them. In a compiled one,
    whose graphs are captured once, always: one addition a step and layer."""

    def __init__(self, runner: Any, layers: tuple[int, ...]) -> None:
        """Raises RuntimeUnsupported for a model or settings that cannot be listened to."""
        config = runner.vllm_config
        bodies = [part for part in runner.get_model().modules() if hasattr(part, "_set_aux_hidden_state_layers")]
        if len(bodies) != 1:
            raise RuntimeUnsupported(
                f"model {type(runner.get_model()).__name__} has {len(bodies)} bodies with auxiliary hidden states, "
                "expected 1: run it without conditioning, --worker-cls of engines.runner"
            )
        for wrong, why in (
            (config.speculative_config is not None, "--speculative-config is set: it listens to the same layers"),
            (config.parallel_config.pipeline_parallel_size > 1, "--pipeline-parallel-size is not 1"),
            (
                config.scheduler_config.async_scheduling,
                "async scheduling runs a step behind the last token: set --no-async-scheduling",
            ),
        ):
            if wrong:
                raise RuntimeUnsupported(f"conditioning: {why}")
        self._body: Any = bodies[0]
        self.layers = tuple(sorted(set(layers)))
        self._always = not config.model_config.enforce_eager
        self._on = False
        if self._always:
            runner.use_aux_hidden_state_outputs = True
            self._body._set_aux_hidden_state_layers(self.layers)

    def want(self, wanted: bool) -> None:
        """Before a forward pass: whether its hidden states will be read."""
        if not self._always and wanted != self._on:
            self._body._set_aux_hidden_state_layers(self.layers if wanted else ())
        self._on = wanted

    def split(self, output: Any) -> tuple[Any, dict[int, Tensor]]:
        """A forward pass's output as vLLM expects it here, and hidden states `[tokens, hidden]` by layer."""
        if not self._on:
            return output, {}
        hidden, heard = output
        return (output if self._always else hidden), dict(zip(self.layers, heard, strict=True))
