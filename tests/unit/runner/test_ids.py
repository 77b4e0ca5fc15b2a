"""Ids and embeddings that go into hooks and come out of them: each row's own, at its own place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engines.runner.errors import HookResultInvalid, ReplayLost
from engines.runner.memory import merge
from tests.unit.runner.stage import Request, Stage
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import HOOKS, TOKENS, Make, arrive, prompt_of

OTHER = 200
"""What is added to ids that decode feeds."""


class Renaming(Talker):
    """Decode goes on with other ids than were sampled, as with those of a codec."""

    def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
        ids = input_ids if info["_omni_is_prefill"] else input_ids + OTHER
        return super().preprocess(ids, input_embeds, **info)

    def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: Any) -> Any:
        return super()._decode_batch(input_ids=input_ids + OTHER, req_infos=req_infos)


def ids_of(s: Stage, count: int) -> list[int]:
    """What stands in the buffer that the forward pass reads ids from."""
    return list(s.runner.input_ids.gpu[:count].tolist())


@HOOKS
def test_ids_that_a_hook_changed_are_those_of_the_forward_pass(stage: Make, batched: bool) -> None:
    s = stage(Renaming(batched=batched))
    arrive(s, "p", 3)
    arrive(s, "r", 2, decoded=0)
    s.step(("p", 0, 2), ("r", 2, 1))
    assert ids_of(s, 3) == [*prompt_of(0, 3)[:2], TOKENS[0] + OTHER]
    assert s.model.mtp_batches[-1] == [TOKENS[0] + OTHER]


@HOOKS
def test_they_are_fed_again_as_they_were(stage: Make, batched: bool) -> None:
    """After a preemption, and with a prompt that outputs were folded into."""
    s = stage(Renaming(batched=batched))
    arrive(s, "r", 3, decoded=3)
    changed = [*prompt_of(0, 3), *(token + OTHER for token in TOKENS[:4])]
    s.step(("r", 0, 7))
    assert ids_of(s, 7) == changed
    s.requests["r"] = Request([*s.requests["r"].ids, *TOKENS[:4], 5])
    s.step(("r", 7, 1))
    s.step(("r", 0, 8))
    assert ids_of(s, 8) == [*changed, 5]


def test_each_row_is_given_its_own_embeddings(stage: Make) -> None:
    given = []

    class Looks(Talker):
        def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
            given.append(input_embeds[:, 0].tolist())
            return super().preprocess(input_ids, input_embeds, **info)

    s = stage(Looks(), prompt_embeds=True)
    arrive(s, "a", 2)
    arrive(s, "b", 4)
    scheduled = s.lay_out([("a", 0, 2), ("b", 0, 3)])
    s.runner.inputs_embeds.gpu[:5] = torch.arange(5.0)[:, None]
    with torch.inference_mode():
        s.runner._preprocess(scheduled, 5)
    assert given == [[0, 1], [2, 3, 4]]


def test_a_replay_with_a_hole_stops_the_engine(stage: Make) -> None:
    """Outputs and more were folded into the prompt, and then it is told that all but the first were sampled: what was
    prompt between them, decode has never fed."""
    s = stage()
    arrive(s, "r", 3, decoded=1)
    s.requests["r"] = Request([*s.requests["r"].ids, TOKENS[0], *prompt_of(9, 3)])
    s.step(("r", 4, 3))
    s.requests["r"].output.append(TOKENS[1])
    s.step(("r", 7, 1))
    ids = s.requests["r"].ids
    s.requests["r"] = Request(ids[:3], output=[*ids[3:], *TOKENS[1:3]])
    s.step(("r", 8, 1))
    with pytest.raises(ReplayLost, match=r"positions 3 to 8 are decode's, and this engine has not fed them"):
        s.step(("r", 0, 9))


def test_what_stays_on_its_device_does_and_all_else_goes_to_the_host() -> None:
    """A tensor on `meta` cannot go to the host, so a try to move it is seen."""
    memory: dict[str, Any] = {}
    there = torch.ones(1, 4, device="meta")
    merge(memory, {"hidden": {"last": there}}, frozenset({("hidden", "last")}))
    assert memory["hidden"]["last"].is_meta
    for update in ({"hidden": {"other": there}}, {"last": there}, {"rows": [there]}):
        with pytest.raises(NotImplementedError, match="meta"):
            merge(memory, update, frozenset({("hidden", "last")}))


@HOOKS
@pytest.mark.parametrize("stays", [False, True])
def test_codes_stay_on_their_device_where_a_model_asks_for_it(stage: Make, batched: bool, stays: bool) -> None:
    class Elsewhere(Talker):
        def _mtp(self, *inputs: torch.Tensor) -> Any:
            rows, codes = super()._mtp(*inputs)
            return rows, codes.to("meta")

    s = stage(Elsewhere(batched=batched))
    s.model.gpu_resident_buffer_keys = {("codes", "audio")} if stays else set()
    s.runner.attach_model()
    arrive(s, "r", 3, decoded=0)
    if not stays:
        with pytest.raises(
            HookResultInvalid, match=r"request r \(row 0\): what talker_mtp returned cannot be copied: "
        ):
            s.step(("r", 3, 1))
        return
    s.step(("r", 3, 1))
    assert s.runner.model_intermediate_buffer["r"]["codes"]["audio"].is_meta
