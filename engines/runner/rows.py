"""The rows of one step, as the runner's batch has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from common.phase import PhaseInfo


class Row(NamedTuple):
    """One request's share of a step, or a part of that: its prompt positions, or its new ones.

    `index` is the request's place in the batch, which is not the order of arrival. `start` is where the tokens begin
    in the step's flat buffers.
    """

    request: str
    index: int
    start: int
    phase: PhaseInfo

    @property
    def stop(self) -> int:
        return self.start + self.phase.span

    def part(self, phase: PhaseInfo) -> Row:
        """The part of it that `phase` says."""
        return Row(self.request, self.index, self.start + phase.num_computed - self.phase.num_computed, phase)


def rows_of(
    order: Sequence[str],
    requests: Mapping[str, Any],
    computed: Sequence[int],
    starts: Sequence[int],
    spans: Mapping[str, int],
) -> list[Row]:
    """All rows of a step, in the batch's order.

    `order` are the batch's request ids and `requests` their current states (vLLM's CachedRequestState), `computed` and
    `starts` are aligned with `order`: tokens computed before this step, and first positions in the flat buffers.
    `spans` are the scheduler's.
    """
    return [
        Row(request, index, starts[index], _phase(requests[request], computed[index], spans[request]))
        for index, request in enumerate(order)
    ]


def _phase(state: Any, computed: int, span: int) -> PhaseInfo:
    prompt = state.prompt_token_ids
    prompt_len = state.num_prompt_tokens if prompt is None else len(prompt)  # None: the prompt came as embeddings
    return PhaseInfo.of(prompt_len, computed, span, prompt_len + len(state.output_token_ids))
