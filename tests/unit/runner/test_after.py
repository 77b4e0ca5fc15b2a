"""What the hook behind the forward pass is told and given: the row as it is now, and its own hidden states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN
from tests.unit.runner.stage import Request
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import HOOKS, TOKENS, Make, arrive, prompt_of

Told = tuple[str, int, int, int, bool]


class After(Talker):
    """Keeps what `postprocess` is told: request, hidden rows, and the phase."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[Told] = []

    def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
        assert (info["duplex_token_offset"], info["duplex_prompt_len"]) == (info[NUM_COMPUTED], info[PROMPT_LEN])
        phase = info[PROMPT_LEN], info[NUM_COMPUTED], info[IS_PREFILL]
        self.told.append((info["request_id"], len(hidden), *phase))
        return super().postprocess(hidden)


@HOOKS
def test_the_rows_phase_and_its_request(stage: Make, batched: bool) -> None:
    s = stage(After(batched=batched))
    arrive(s, "a", 3, decoded=1)
    arrive(s, "b", 5)
    s.model.told.clear()
    s.step(("b", 0, 4), ("a", 4, 1))
    assert s.model.told == [("b", 4, 5, 0, True), ("a", 1, 3, 4, False)]


@HOOKS
@pytest.mark.parametrize(("computed", "span"), [(0, 8), (2, 6), (4, 4), (6, 2)])
def test_of_a_row_that_is_cut_what_is_new_is_told(stage: Make, batched: bool, computed: int, span: int) -> None:
    """Its prompt, and what is fed again, were seen before: as if it had never been preempted."""
    s = stage(After(batched=batched))
    arrive(s, "r", 4, decoded=3)
    s.model.told.clear()
    s.step(("r", computed, span))
    assert s.model.told == [("r", 1, 4, 7, False)]


class Counting(After):
    """Its `postprocess` moves decode's state on, as a model of vLLM-Omni's does."""

    def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
        updates = super().postprocess(hidden, **info)
        nested = {"frames": info.get("nested", {}).get("frames", 0) + (not info[IS_PREFILL])}
        return {**updates, "frames": info.get("frames", 0) + (not info[IS_PREFILL]), "nested": nested}


@HOOKS
@pytest.mark.parametrize(
    "chunks", [[9], [8, 1], [7, 1, 1], [5, 3, 1], [5, 1, 1, 1, 1], [8, 0, 8, 1], [6, 0, 8, 0, 9]], ids=str
)
def test_what_it_counts_is_counted_once(stage: Make, batched: bool, chunks: list[int]) -> None:
    """Prompt 5, three frames said; preempted (and where a chunk is 0 once more), and a fourth is said."""
    s = stage(Counting(batched=batched))
    reference = arrive(s, "r", 5, decoded=3)
    memory = s.runner.model_intermediate_buffer["r"]
    assert memory["frames"] == memory["nested"]["frames"] == 3
    start = 0
    for span in chunks:
        if span:
            s.step(("r", start, span))
        start = start + span if span else 0
    assert memory["frames"] == memory["nested"]["frames"] == memory["steps"] == 4
    assert s.codes("r") == reference.codes[8]


def test_a_row_that_is_fed_again_is_told_afresh(stage: Make) -> None:
    """No hook before the forward pass is asked about it: the phase that one was told of is an earlier row's."""
    s = stage(After())
    arrive(s, "r", 4, decoded=3)
    s.requests["r"].output.pop()
    s.step(("r", 0, 5))
    s.model.told.clear()
    s.step(("r", 5, 2))
    assert s.model.told == [("r", 1, 4, 6, False)]


def test_a_row_that_is_fed_again_is_told_where_a_hook_runs_before_the_rows(stage: Make) -> None:
    class Before(After):
        def preprocess_batch(self, **_: Any) -> None:
            pass

    s = stage(Before())
    arrive(s, "r", 4, decoded=3)
    s.requests["r"].output.pop()
    s.step(("r", 0, 5))
    s.step(("r", 5, 2))
    assert s.model.told[-1] == ("r", 1, 4, 6, False)


def test_what_a_batched_hook_writes_into_its_rows_does_not_count(stage: Make) -> None:
    class Meddler(After):
        def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: Any) -> Any:
            found = super()._decode_batch(input_ids=input_ids, req_infos=req_infos)
            for info in req_infos:
                info |= {"request_id": "other", IS_PREFILL: True, NUM_COMPUTED: 0, PROMPT_LEN: 99}
                info |= {"duplex_token_offset": -1, "duplex_prompt_len": -1}
            return found

    s = stage(Meddler(batched=True))
    arrive(s, "r", 3, decoded=1)
    assert s.model.told[-1] == ("r", 1, 3, 3, False)


@HOOKS
@pytest.mark.parametrize("pad", [1, 3, 9])
def test_padding_behind_the_rows_is_nobodys(stage: Make, batched: bool, pad: int) -> None:
    """Captured graphs run more tokens than there are: hidden states count from the first."""
    s = stage(After(batched=batched))
    references = {}
    for k, name in enumerate("ab"):
        references[name] = arrive(s, name, 4 + k)
        s.step((name, 0, 2), pad=pad)
        s.step((name, 2, 2 + k), pad=pad)
    for step in range(3):
        for name in "ab":
            s.requests[name].output.append(TOKENS[step])
        s.step(("b", 5 + step, 1), ("a", 4 + step, 1), pad=pad)
        assert {name: s.codes(name) for name in "ab"} == {
            "a": references["a"].codes[4 + step],
            "b": references["b"].codes[5 + step],
        }
    assert s.model.told[-2:] == [("b", 1, 5, 7, False), ("a", 1, 4, 6, False)]


def test_a_new_prompt_is_told_of_at_once(stage: Make) -> None:
    """Streaming input: what was said is prompt now."""
    s = stage(After())
    arrive(s, "r", 3, decoded=1)
    s.requests["r"] = Request([*s.requests["r"].ids, TOKENS[0], *prompt_of(9, 2)])
    s.step(("r", 4, 2))
    assert s.model.told[-1] == ("r", 2, 6, 4, True)
