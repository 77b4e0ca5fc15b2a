"""Requests that are computed again: after a preemption, in chunks, with a prompt into which outputs were folded.

Those of which tokens were taken back are in `test_rewind.py`.
"""

from __future__ import annotations

import pytest
import torch

from engines.runner.errors import ReplayLost
from tests.unit.runner.stage import Request, Stage
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import HOOKS, TOKENS, Make, alone, arrive, fed, prompt_of

Chunks = list[int]


def resume(s: Stage, name: str, chunks: Chunks, start: int = 0) -> list[int]:
    """Computes the request again from `start`, in these chunks. Returns what was fed."""
    rows: list[int] = []
    for span in chunks:
        rows += fed(s.step((name, start + len(rows), span)), name)
    return rows


@HOOKS
@pytest.mark.parametrize(
    "chunks",
    [[51], [41, 10], [40, 1, 9, 1], [30, 20, 1], [45, 6], [41, *[1] * 10], [50, 1]],
    ids=str,
)
def test_a_preempted_request_is_fed_what_it_was_fed(stage: Make, batched: bool, chunks: Chunks) -> None:
    """Prompt 41, nine frames said and a tenth id sampled; all 51 positions are computed again."""
    s = stage(Talker(batched=batched))
    reference = arrive(s, "r", 41, decoded=9)
    s.model.calls.clear()
    s.model.mtp_batches.clear()
    assert resume(s, "r", chunks) == reference.rows[:51]
    assert s.model.mtp_batches == [[TOKENS[9]]], "one new position, one frame"
    assert s.codes("r") == reference.codes[50]
    assert [(c.prompt_len, c.computed) for c in s.model.calls if not c.is_prefill] == [(41, 50)]
    assert all(c.computed + len(c.ids) <= 41 for c in s.model.calls if c.is_prefill)
    s.requests["r"].output.append(TOKENS[10])
    assert fed(s.step(("r", 51, 1)), "r") == [reference.rows[51]]
    assert s.codes("r") == reference.codes[51]


def test_preempted_before_it_said_anything(stage: Make) -> None:
    """The prompt was computed and one id sampled: nothing was fed past the prompt yet."""
    s = stage()
    reference = arrive(s, "r", 5, decoded=0)
    assert resume(s, "r", [6]) == reference.rows[:6]
    assert s.codes("r") == reference.codes[5]
    assert s.model.mtp_batches == [[TOKENS[0]]]


def test_preempted_in_its_prompt(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 8)
    s.step(("r", 0, 5))
    assert resume(s, "r", [7, 1]) == reference.rows[:8]
    assert s.model.mtp_batches == []


def test_preempted_twice_in_the_middle_of_its_replay(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 4, decoded=6)
    assert resume(s, "r", [7]) == reference.rows[:7]
    assert resume(s, "r", [11]) == reference.rows[:11]
    assert s.model.mtp_batches == [[t] for t in TOKENS[:7]]


def test_an_older_hidden_state_does_not_overwrite_a_newer(stage: Make) -> None:
    s = stage()
    arrive(s, "r", 4, decoded=3)
    newest = s.runner.model_intermediate_buffer["r"]["last"].clone()
    s.step(("r", 0, 5))
    assert s.runner.model_intermediate_buffer["r"]["last"].equal(newest)


def test_the_newest_position_that_is_computed_again_is_seen_again(stage: Make) -> None:
    """Its first hidden state may have come from KV that failed to load."""
    s = stage()
    arrive(s, "r", 4, decoded=3)
    memory = s.runner.model_intermediate_buffer["r"]
    right = memory["last"].clone()
    memory["last"] = torch.full_like(right, -1.0)
    s.step(("r", 0, 7))
    assert memory["last"].equal(right)


def test_the_tail_of_a_replay_looks_like_decode_and_is_not(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 4, decoded=3)
    s.model.calls.clear()
    s.model.mtp_batches.clear()
    assert fed(s.step(("r", 6, 1)), "r") == [reference.rows[6]]
    assert s.model.calls == []
    assert s.model.mtp_batches == []
    assert s.runner.model_intermediate_buffer["r"]["steps"] == 3


@HOOKS
def test_a_resumed_request_beside_others(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    references = {"a": arrive(s, "a", 5, decoded=4), "b": arrive(s, "b", 3, decoded=1), "c": arrive(s, "c", 6)}
    ran = s.step(("b", 4, 1), ("a", 0, 10), ("c", 0, 6))
    assert fed(ran, "a") == references["a"].rows[:10]
    assert fed(ran, "b") == [references["b"].rows[4]]
    assert fed(ran, "c") == references["c"].rows[:6]
    assert s.codes("a") == references["a"].codes[9]
    assert s.codes("b") == references["b"].codes[4]


def folded(s: Stage) -> tuple[Request, list[int]]:
    """Prompt 5, three frames said, a fourth id sampled and dropped; the three join the prompt, and four more ids."""
    arrive(s, "r", 5, decoded=3)
    more = prompt_of(9, 4)
    before = s.requests["r"]
    s.requests["r"] = Request([*before.ids, *TOKENS[:3], *more])
    return s.requests["r"], more


def test_a_folded_prompt_is_prompt_again(stage: Make) -> None:
    s = stage()
    request, more = folded(s)
    reference = alone(prompt_of(0, 5), 3)
    reference.prompt(more)
    s.model.calls.clear()
    assert fed(s.step(("r", 8, 4)), "r") == reference.rows[8:12]
    assert [(c.prompt_len, c.computed, c.is_prefill) for c in s.model.calls] == [(12, 8, True)]
    reference.speak(TOKENS[4])
    request.output.append(TOKENS[4])
    assert fed(s.step(("r", 12, 1)), "r") == [reference.rows[12]]
    assert s.codes("r") == reference.codes[12]


def test_what_was_said_before_the_fold_is_fed_as_it_was(stage: Make) -> None:
    s = stage()
    request, more = folded(s)
    reference = alone(prompt_of(0, 5), 3)
    reference.prompt(more)
    reference.speak(TOKENS[4])
    s.step(("r", 8, 4))
    request.output.append(TOKENS[4])
    assert resume(s, "r", [13]) == reference.rows[:13], "all of it again, after a preemption"
    assert s.codes("r") == reference.codes[12]


@pytest.mark.parametrize("row", [(5, 1), (0, 7), (5, 2), (6, 1), (0, 9), (5, 4), (8, 1)])
def test_a_replay_of_what_was_never_fed_stops_the_engine(stage: Make, row: tuple[int, int]) -> None:
    s = stage()
    s.requests["r"] = Request(prompt_of(0, 5), output=TOKENS[:4])
    with pytest.raises(
        ReplayLost, match=r"model Talker, request r \(row 0\): positions \d to [568] are decode's"
    ) as raised:
        s.step(("r", *row))
    assert (raised.value.requests, raised.value.rows, raised.value.model) == (("r",), (0,), "Talker")
