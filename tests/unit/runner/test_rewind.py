"""Tokens that decode has fed, and that do not count: what comes in their place says what it would have said at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from engines.runner.errors import HookFailed, RewindLost
from engines.runner.fed import KEPT
from tests.unit.runner.stage import Request, Stage, config
from tests.unit.runner.talker import Alone, Talker
from tests.unit.runner.test_contract import HOOKS, TOKENS, Make, alone, arrive, fed, prompt_of
from tests.unit.runner.test_mtp import Sampled
from tests.unit.runner.test_resume import resume

OTHER = 200
"""An id that is sampled where another was taken back."""


def memory(s: Stage) -> dict[str, Any]:
    return s.runner.model_intermediate_buffer["r"]


def goes_on(s: Stage, reference: Alone, position: int) -> None:
    """The token at `position` is new, and so is all that hangs on it."""
    s.requests["r"].output.append(OTHER)
    reference.take_back(position)
    reference.speak(OTHER)
    assert fed(s.step(("r", position, 1)), "r") == [reference.rows[position]]
    assert s.codes("r") == reference.codes[position]
    assert memory(s)["steps"] == len(reference.codes)


@HOOKS
@pytest.mark.parametrize("start", [0, 5, 7], ids=["from its start", "from its first decode row", "where it was cut"])
@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_other_tokens_in_their_place_say_what_they_would_have_said(
    stage: Make, batched: bool, dropped: int, start: int
) -> None:
    """Prompt 5, six frames said and a seventh id sampled. Async scheduling drops what was under way when it resets; a
    KV load that fails takes back more."""
    s = stage(Talker(batched=batched))
    reference = arrive(s, "r", 5, decoded=6)
    known = 11 - dropped
    del s.requests["r"].output[known - 5 :]
    s.model.mtp_batches.clear()
    begin = min(start, known - 1)
    assert resume(s, "r", [known - begin], begin) == reference.rows[begin:known], "what counts is fed as it was"
    assert s.model.mtp_batches == [], "and said once"
    goes_on(s, reference, known)


def test_one_token_that_was_sampled_and_not_fed_changes_nothing(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 5, decoded=3)
    s.requests["r"].output.pop()
    assert resume(s, "r", [8]) == reference.rows[:8]
    assert memory(s)["steps"] == 3
    goes_on(s, reference, 8)


def test_all_that_was_said(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 5, decoded=KEPT)
    s.requests["r"].output.clear()
    assert resume(s, "r", [5]) == reference.rows[:5]
    assert s.codes("r") is None
    goes_on(s, reference, 5)


def test_twice(stage: Make) -> None:
    s = stage()
    reference = arrive(s, "r", 5, decoded=4)
    for _ in range(2):
        del s.requests["r"].output[2:]
        resume(s, "r", [7])
        goes_on(s, reference, 7)


def test_a_hidden_state_of_a_token_that_was_dropped_is_not_the_newest(stage: Make) -> None:
    """The row before is computed again, and what the model sees of it counts."""
    s = stage()
    arrive(s, "r", 5, decoded=3)
    newest = memory(s)["last"].clone()
    before = s.runner.kept.fed["r"].hidden_at
    del s.requests["r"].output[2:]
    s.step(("r", 0, 7))
    assert (before, s.runner.kept.fed["r"].hidden_at) == (7, 6)
    assert not memory(s)["last"].equal(newest)


def test_what_a_model_has_changed_in_place_is_put_back_too(stage: Make) -> None:
    class Careless(Talker):
        def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: list[dict[str, Any]]) -> Any:
            for info in req_infos:
                info["counted"] = info.get("counted", 0) + 1
                info.setdefault("nested", {})["counted"] = info["counted"]
            return super()._decode_batch(input_ids=input_ids, req_infos=req_infos)

    s = stage(Careless(batched=True))
    arrive(s, "r", 5, decoded=3)
    assert memory(s)["counted"] == memory(s)["nested"]["counted"] == 3
    del s.requests["r"].output[1:]
    s.step(("r", 5, 1))
    assert memory(s)["counted"] == memory(s)["nested"]["counted"] == 1


def test_a_nested_dict_of_any_kind_is_put_back(stage: Make) -> None:
    class Careless(Talker):
        def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: list[dict[str, Any]]) -> Any:
            for info in req_infos:
                info.setdefault("counts", defaultdict(int))["frames"] += 1
                info["sampling_extra_args"]["text"] = info["sampling_extra_args"].get("text", 0) + 1
            return super()._decode_batch(input_ids=input_ids, req_infos=req_infos)

    s = stage(Careless(batched=True))
    arrive(s, "r", 5, decoded=3)
    del s.requests["r"].output[1:]
    s.step(("r", 5, 1))
    assert memory(s)["counts"]["frames"] == memory(s)["sampling_extra_args"]["text"] == 1


def test_it_is_put_back_before_any_hook_sees_it(stage: Make) -> None:
    """`preprocess_batch` too, whose rows are the first hook's of a step; what that prepares is not lost with it."""

    class Prepared(Talker):
        def preprocess_batch(self, *, req_ids: list[str], model_intermediate_buffer: Any, device: Any) -> None:
            for request in req_ids:
                heard.append(model_intermediate_buffer[request].get("steps", 0))
                model_intermediate_buffer[request]["prepared"] = len(heard)

        def on_tokens_taken_back(self, req_id: str, position: int) -> None:
            heard.append(f"back to {position}")

        def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
            assert info["prepared"] == len(heard)
            return super().preprocess(input_ids, input_embeds, **info)

    heard: list[Any] = []
    s = stage(Prepared())
    arrive(s, "r", 5, decoded=3)
    s.requests["r"] = Request([*s.requests["r"].ids, *TOKENS[:2], 7, 8])  # the third was fed, and is dropped
    heard.clear()
    s.step(("r", 7, 2))
    assert heard == ["back to 7", 2]


@pytest.mark.parametrize("keep", [3, 2, 1, 0])
def test_a_seeded_request_draws_again_what_it_drew(keep: int) -> None:
    """Back into its stream, and to its seed."""
    s = Stage(model=Sampled())
    s.requests["r"] = Request(prompt_of(0, 3), extra_args={"tts_local_seed": 7})
    s.step(("r", 0, 3))

    def speak(start: int) -> list[list[int] | None]:
        said = []
        for k in range(start, 4):
            s.requests["r"].output.append(TOKENS[k])
            s.step(("r", 3 + k, 1))
            said.append(s.codes("r"))
        return said

    undisturbed = speak(0)
    del s.requests["r"].output[keep:]
    s.step(("r", 0, 3 + keep))
    assert speak(keep) == undisturbed[keep:]


def test_further_back_than_is_remembered_stops_the_engine(stage: Make) -> None:
    s = stage()
    arrive(s, "r", 5, decoded=KEPT + 1)
    s.requests["r"].output.clear()
    with pytest.raises(
        RewindLost, match=r"model Talker, request r \(row 0\): of positions up to 9, .* from 5 on do not count"
    ):
        s.step(("r", 0, 5))


def test_without_async_scheduling_nothing_is_remembered_for_it(stage: Make) -> None:
    """vLLM takes nothing back there that was fed; should it, that is no guess."""
    s = stage()
    s.runner.vllm_config = config(asynchronous=False)
    s.runner.attach_model()
    arrive(s, "r", 5, decoded=2)
    assert s.runner.kept.fed["r"].forget(6)[0] is None
    arrive(s, "q", 5, decoded=2)
    del s.requests["q"].output[1:]
    with pytest.raises(RewindLost, match=r"from 6 on do not count any more; expected none, without async scheduling"):
        s.step(("q", 0, 6))


def test_a_fold_that_drops_a_token_which_was_fed(stage: Make) -> None:
    """With async scheduling one more token may have been fed than the scheduler keeps."""
    s = stage()
    arrive(s, "r", 5, decoded=3)
    more = prompt_of(9, 4)
    s.requests["r"] = Request([*s.requests["r"].ids, *TOKENS[:2], *more])
    reference = alone(prompt_of(0, 5), 2)
    reference.prompt(more)
    assert fed(s.step(("r", 7, 4)), "r") == reference.rows[7:11]
    assert memory(s)["steps"] == 2
    reference.speak(OTHER)
    s.requests["r"].output.append(OTHER)
    assert fed(s.step(("r", 11, 1)), "r") == [reference.rows[11]]
    assert s.codes("r") == reference.codes[11]


@pytest.mark.parametrize("start", [0, 3])
def test_a_fold_whose_first_row_starts_before_what_was_fed_stops_the_engine(stage: Make, start: int) -> None:
    """Which of the tokens that were fed are in the new prompt cannot be known: a prompt row would be a guess."""
    s = stage()
    arrive(s, "r", 5, decoded=3)
    s.requests["r"] = Request([*s.requests["r"].ids, *TOKENS[:3], *prompt_of(9, 4)])
    with pytest.raises(RewindLost, match=rf"from {start} on do not count"):
        s.step(("r", start, 12 - start))


def test_a_fold_of_what_said_nothing_may_start_anywhere(stage: Make) -> None:
    s = stage()
    arrive(s, "r", 5, decoded=0)
    more = prompt_of(9, 4)
    s.requests["r"] = Request([*s.requests["r"].ids, *more])
    reference = alone(prompt_of(0, 5), 0)
    reference.prompt(more)
    assert fed(s.step(("r", 0, 9)), "r") == reference.rows[:9]


class Keeper(Talker):
    """Keeps something of its own, and says what it was told."""

    told: Any = None

    def on_tokens_taken_back(self, req_id: str, position: int) -> None:
        self.told = (req_id, position, self.calls[-1].computed)


def test_a_model_is_told_before_its_next_hook(stage: Make) -> None:
    s = stage(Keeper())
    arrive(s, "r", 5, decoded=3)
    assert s.model.told is None
    del s.requests["r"].output[2:]
    s.step(("r", 0, 7))
    assert s.model.told == ("r", 7, 7), "the last row that it had seen by then was the one that was taken back"
    s.model.told = None
    s.step(("r", 0, 7))
    assert s.model.told is None, "once"


def test_a_model_that_cannot_stops_the_engine(stage: Make) -> None:
    class Unable(Talker):
        def on_tokens_taken_back(self, req_id: str, position: int) -> None:
            raise KeyError(position)

    s = stage(Unable())
    arrive(s, "r", 5, decoded=3)
    del s.requests["r"].output[2:]
    with pytest.raises(HookFailed, match=r"request r \(row 0\): on_tokens_taken_back raised KeyError: 7"):
        s.step(("r", 0, 7))
