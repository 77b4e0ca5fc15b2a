"""The phase contract on the production `_preprocess` and MTP: what hooks are told, what is fed, what is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest
import torch

from common.phase import KEYS
from tests.unit.runner.stage import STALE, Ran, Request, Stage
from tests.unit.runner.talker import HIDDEN, Alone, Call, Talker

Make = Callable[..., Stage]
HOOKS = pytest.mark.parametrize("batched", [False, True], ids=["scalar", "batched"])
DECODE_HOOK = {False: "preprocess", True: "preprocess_decode_batch"}
TOKENS = list(range(100, 160))
"""What is sampled, in every request."""


def prompt_of(seed: int, length: int) -> list[int]:
    return [(seed * 31 + k * 7) % 97 for k in range(length)]


def alone(prompt: Sequence[int], spoken: int) -> Alone:
    """The request by itself, after `spoken` decode steps."""
    reference = Alone()
    reference.prompt(prompt)
    for token in TOKENS[:spoken]:
        reference.speak(token)
    return reference


def fed(ran: Ran, request: str) -> list[int]:
    rows = ran.embeds[request]
    assert (rows == rows[:, :1]).all()
    return [int(v) for v in rows[:, 0].tolist()]


def arrive(stage: Stage, name: str, prompt_len: int, *, decoded: int = -1) -> Alone:
    """A request with its prompt computed and `decoded` decode steps done; -1: nothing computed, nothing sampled."""
    prompt = prompt_of(len(stage.requests), prompt_len)
    stage.requests[name] = Request(prompt)
    if decoded >= 0:
        stage.step((name, 0, prompt_len))
        stage.requests[name].output.append(TOKENS[0])
        for k in range(decoded):
            stage.step((name, prompt_len + k, 1))
            stage.requests[name].output.append(TOKENS[k + 1])
    return alone(prompt, len(TOKENS))


@HOOKS
def test_a_prompt_in_chunks_with_a_tail_of_one_token_then_decode(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    reference = arrive(s, "r", 5)
    rows = fed(s.step(("r", 0, 4)), "r")
    rows += fed(s.step(("r", 4, 1)), "r")
    assert s.codes("r") is None, "MTP ran for a prompt row"
    for k in range(2):
        s.requests["r"].output.append(TOKENS[k])
        rows += fed(s.step(("r", 5 + k, 1)), "r")
        assert s.codes("r") == reference.codes[5 + k]
    assert rows == reference.rows[:7]
    ids = [*s.requests["r"].ids, *TOKENS]
    hook = DECODE_HOOK[batched]
    assert s.model.calls == [
        Call("preprocess", "r", 5, 0, True, tuple(ids[0:4])),
        Call("preprocess", "r", 5, 4, True, tuple(ids[4:5])),
        Call(hook, "r", 5, 5, False, (TOKENS[0],)),
        Call(hook, "r", 5, 6, False, (TOKENS[1],)),
    ]
    assert s.model.mtp_batches == [[TOKENS[0]], [TOKENS[1]]]


@HOOKS
def test_a_prompt_of_one_token(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    reference = arrive(s, "r", 1, decoded=0)
    assert s.model.calls == [Call("preprocess", "r", 1, 0, True, tuple(s.requests["r"].ids))]
    assert s.model.mtp_batches == []
    assert fed(s.step(("r", 1, 1)), "r") == [reference.rows[1]]
    assert s.codes("r") == reference.codes[1]


def test_progress_that_was_cached_counts(stage: Make) -> None:
    """A prefix cache, or another engine's KV: the first row starts inside the prompt."""
    s = stage()
    reference = arrive(s, "cached", 8)
    assert fed(s.step(("cached", 6, 2)), "cached") == reference.rows[6:8]
    loaded = arrive(s, "loaded", 8)
    assert fed(s.step(("loaded", 7, 1)), "loaded") == loaded.rows[7:8]
    assert [(c.request, c.computed, c.is_prefill) for c in s.model.calls] == [("cached", 6, True), ("loaded", 7, True)]
    assert s.model.mtp_batches == []
    s.requests["loaded"].output.append(TOKENS[0])
    assert fed(s.step(("loaded", 8, 1)), "loaded") == loaded.rows[8:9]
    assert s.codes("loaded") == loaded.codes[8]


@HOOKS
@pytest.mark.parametrize("order", list(permutations("abcd")), ids="".join)
def test_a_mixed_batch_in_any_order(stage: Make, batched: bool, order: tuple[str, ...]) -> None:
    """Two decode rows, a prompt's chunk and a prompt's tail. Rows follow the batch, not the order of arrival."""
    s = stage(Talker(batched=batched))
    references = {
        "a": arrive(s, "a", 5, decoded=1),
        "b": arrive(s, "b", 6, decoded=2),
        "c": arrive(s, "c", 9),
        "d": arrive(s, "d", 4),
    }
    s.step(("d", 0, 3))
    rows = {"a": (6, 1), "b": (8, 1), "c": (0, 3), "d": (3, 1)}
    s.model.calls.clear()
    s.model.mtp_batches.clear()
    ran = s.step(*((name, *rows[name]) for name in order), pad=3)
    for name, (computed, span) in rows.items():
        assert fed(ran, name) == references[name].rows[computed : computed + span]
    assert [c.request for c in s.model.calls] == list(order)
    assert {c.request: c.is_prefill for c in s.model.calls} == {"a": False, "b": False, "c": True, "d": True}
    assert s.codes("a") == references["a"].codes[6]
    assert s.codes("b") == references["b"].codes[8]
    assert s.codes("c") is None
    assert s.codes("d") is None
    taken = {"a": TOKENS[1], "b": TOKENS[2]}
    assert s.model.mtp_batches == [[taken[name] for name in order if name in taken]]


def test_adjacent_decode_rows_share_a_call_and_others_part_them(stage: Make) -> None:
    s = stage(Talker(batched=True))
    references = {name: arrive(s, name, 3 + k, decoded=k) for k, name in enumerate("abcde")}
    arrive(s, "p", 7)
    s.model.groups.clear()
    s.model.mtp_batches.clear()
    decode = {name: (name, 3 + 2 * k, 1) for k, name in enumerate("abcde")}
    ran = s.step(decode["b"], decode["a"], ("p", 0, 4), decode["e"], decode["d"], decode["c"])
    assert s.model.groups == [["b", "a"], ["e", "d", "c"]]
    assert s.model.mtp_batches == [[TOKENS[1], TOKENS[0], TOKENS[4], TOKENS[3], TOKENS[2]]]
    for k, name in enumerate("abcde"):
        assert fed(ran, name) == [references[name].rows[3 + 2 * k]]
        assert s.codes(name) == references[name].codes[3 + 2 * k]


@HOOKS
def test_requests_that_decode_together_keep_their_own_codes(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    names = [f"r{k}" for k in range(32)]
    references = {name: arrive(s, name, 1 + k % 5, decoded=0) for k, name in enumerate(names)}
    for step in range(4):
        rows = [(name, 1 + k % 5 + step, 1) for k, name in enumerate(names)]
        s.step(*(rows[step:] + rows[:step]))
        for name, computed, _ in rows:
            assert s.codes(name) == references[name].codes[computed]
            s.requests[name].output.append(TOKENS[step + 1])
    assert len({tuple(references[n].codes[1 + k % 5 + 3]) for k, n in enumerate(names)}) > 16


@HOOKS
def test_a_decode_span_of_two_goes_to_the_scalar_hook_and_not_to_mtp(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    arrive(s, "wide", 5, decoded=0)
    reference = arrive(s, "r", 5, decoded=0)
    s.requests["wide"].output.append(TOKENS[1])
    s.model.calls.clear()
    s.model.mtp_batches.clear()
    s.requests["wide"].output.pop()
    draft = s.requests["wide"]
    draft.token = lambda position: [*draft.ids, TOKENS[0], TOKENS[1]][position]
    ran = s.step(("wide", 5, 2), ("r", 5, 1))
    assert s.model.calls[0] == Call("preprocess", "wide", 5, 5, False, (TOKENS[0], TOKENS[1]))
    assert fed(ran, "wide") == [TOKENS[0], TOKENS[1]]
    assert s.codes("wide") is None
    assert s.model.mtp_batches == [[TOKENS[0]]]
    assert fed(ran, "r") == [reference.rows[5]]


def test_without_mtp_the_batched_hook_gives_rows_and_updates_alone(stage: Make) -> None:
    """Three results, as vLLM-Omni 0.30 has it."""
    s = stage(Talker(batched=True, speaks=False))
    arrive(s, "a", 3, decoded=1)
    arrive(s, "b", 2, decoded=0)
    s.model.calls.clear()
    ran = s.step(("b", 2, 1), ("a", 4, 1))
    assert s.model.groups[-1] == ["b", "a"]
    assert [c.hook for c in s.model.calls] == ["preprocess_decode_batch"] * 2
    assert (fed(ran, "b"), fed(ran, "a")) == ([TOKENS[0]], [TOKENS[1]])
    assert [s.runner.model_intermediate_buffer[name]["steps"] for name in "ab"] == [2, 1]
    assert s.codes("a") is None


@HOOKS
def test_stale_keys_in_a_models_state_win_nothing(stage: Make, batched: bool) -> None:
    s = stage(Talker(batched=batched))
    reference = arrive(s, "r", 5)
    s.step(("r", 0, 4))
    lie = {"_omni_is_prefill": False, "_omni_num_computed_tokens": 9, "_omni_prompt_len": 1, "request_id": "another"}
    s.runner.model_intermediate_buffer["r"].update(lie)
    assert fed(s.step(("r", 4, 1)), "r") == [reference.rows[4]]
    s.requests["r"].output.append(TOKENS[0])
    s.runner.model_intermediate_buffer["r"].update({**lie, "_omni_is_prefill": True})
    assert fed(s.step(("r", 5, 1)), "r") == [reference.rows[5]]
    assert [(c.request, c.prompt_len, c.computed, c.is_prefill) for c in s.model.calls] == [
        ("r", 5, 0, True),
        ("r", 5, 4, True),
        ("r", 5, 5, False),
    ]


def test_a_hook_cannot_store_the_runners_keys(stage: Make) -> None:
    class Meddler(Talker):
        def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
            ids, rows, updates = super().preprocess(input_ids, input_embeds, **info)
            return ids, rows, {**updates, "_omni_is_prefill": "mine", "mine": 1}

    s = stage(Meddler())
    arrive(s, "r", 3, decoded=1)
    kept = s.runner.model_intermediate_buffer["r"]
    assert kept["_omni_is_prefill"] is False
    assert kept["mine"] == 1
    assert "mtp_inputs" not in kept


def test_the_hook_before_the_rows_sees_no_phase(stage: Make) -> None:
    seen = []

    class Prepared(Talker):
        def preprocess_batch(
            self, *, req_ids: list[str], model_intermediate_buffer: dict[str, Any], device: Any
        ) -> None:
            seen.append((req_ids, {r: sorted(model_intermediate_buffer.get(r, {})) for r in req_ids}, device.type))
            for request in req_ids:
                model_intermediate_buffer[request]["prepared"] = True

    s = stage(Prepared())
    arrive(s, "r", 3, decoded=1)
    arrive(s, "q", 2)
    s.step(("q", 0, 2), ("r", 4, 1))
    assert seen[-1][0] == ["q", "r"]
    assert seen[-1][2] == "cpu"
    assert "steps" in seen[-1][1]["r"]
    assert not [key for names in seen[-1][1].values() for key in names if key in KEYS]
    assert s.runner.model_intermediate_buffer["q"]["prepared"]


def test_a_model_without_hooks_is_left_alone(stage: Make) -> None:
    class Plain:
        def __call__(self, *, positions: torch.Tensor, inputs_embeds: Any, **_: Any) -> torch.Tensor:
            assert inputs_embeds is None
            return torch.zeros(len(positions), 4)

        def preprocess(self, **_: Any) -> None:
            raise AssertionError("has_preprocess is not set")

    s = stage(Plain())
    s.requests["r"] = Request([1, 2, 3])
    scheduled = s.lay_out([("r", 0, 3)])
    ids, embeds, *_ = s.runner._preprocess(scheduled, 3)
    assert ids.tolist() == [1, 2, 3]
    assert embeds is None
    s.finish("r")


def test_what_the_prompt_brought_reaches_the_hook(stage: Make) -> None:
    """With prompt embeddings on, rows hold something before the hook: it is given them."""
    given = []

    class Looks(Talker):
        def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
            given.append(None if input_embeds is None else input_embeds[:, 0].tolist())
            return super().preprocess(input_ids, input_embeds, **info)

    s = stage(Looks())
    arrive(s, "r", 2)
    s.step(("r", 0, 2))
    s = stage(Looks(), prompt_embeds=True)
    reference = arrive(s, "r", 2)
    ran = s.step(("r", 0, 2))
    assert given == [None, [STALE, STALE]]
    assert fed(ran, "r") == reference.rows[:2]
    assert ran.answer[0] is None, "graphs are captured for embeddings alone"


def test_buffers_are_reused(stage: Make) -> None:
    s = stage()
    arrive(s, "r", 3, decoded=0)
    held = [t.data_ptr() for t in s.runner.mtp._buffers]
    first = s.step(("r", 3, 1)).answer[1].data_ptr()
    s.requests["r"].output.append(TOKENS[1])
    assert s.step(("r", 4, 1)).answer[1].data_ptr() == first
    assert [t.data_ptr() for t in s.runner.mtp._buffers] == held


def test_a_finished_request_leaves_nothing_and_its_name_can_come_again(stage: Make) -> None:
    s = stage()
    arrive(s, "r", 5, decoded=3)
    s.finish("r")
    assert s.model.finished == ["r"]
    assert (s.runner.model_intermediate_buffer, s.runner.kept.fed, s.runner.kept.pool.held) == ({}, {}, 0)
    reference = arrive(s, "r", 4, decoded=2)
    assert s.codes("r") == reference.codes[5]


class Reusing(Talker):
    """Its forward pass and its hooks give views of buffers, which the next row or step overwrites."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hidden = torch.zeros(64, HIDDEN)
        self.seen = torch.zeros(1, HIDDEN)
        self.spoken = torch.zeros(64, 3, dtype=torch.long)

    def __call__(self, **inputs: Any) -> torch.Tensor:
        found = super().__call__(**inputs)
        return self.hidden[: len(found)].copy_(found)

    def postprocess(self, hidden: torch.Tensor, **info: Any) -> dict[str, Any]:
        seen = self.seen.copy_(hidden[-1:])
        return {"last": hidden[-1:], "seen": seen, "listed": [seen, 1], "nested": {"seen": seen, "listed": [[seen]]}}

    def _mtp(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, codes = super()._mtp(*inputs)
        return rows, self.spoken[: len(codes)].copy_(codes)


@HOOKS
def test_what_is_kept_is_a_copy(stage: Make, batched: bool) -> None:
    """In a list, and one dict further down, too."""
    s = stage(Reusing(batched=batched))
    references = {"a": arrive(s, "a", 3, decoded=1), "b": arrive(s, "b", 4, decoded=1)}
    s.step(("a", 4, 1), ("b", 5, 1))
    expected = {"a": s.model.hidden[0].clone(), "b": s.model.hidden[1].clone()}
    for buffer in (s.model.hidden, s.model.seen, s.model.spoken):
        buffer.fill_(-1)
    for name, position in (("a", 4), ("b", 5)):
        kept = s.runner.model_intermediate_buffer[name]
        nested = kept["nested"]
        for one in (kept["last"], kept["seen"], kept["listed"][0], nested["seen"], nested["listed"][0][0]):
            assert torch.equal(one, expected[name][None])
            assert one.untyped_storage().nbytes() == one.nbytes
        assert s.codes(name) == references[name].codes[position]
        s.requests[name].output.append(TOKENS[2])
    s.step(("b", 6, 1), ("a", 5, 1))
    assert {name: s.codes(name) for name in "ab"} == {"a": references["a"].codes[5], "b": references["b"].codes[6]}


def test_what_stays_on_the_device_is_a_copy_too(stage: Make) -> None:
    class Resident(Reusing):
        gpu_resident_buffer_keys = frozenset({("nested", "seen"), ("codes", "audio")})

    s = stage(Resident())
    reference = arrive(s, "r", 3, decoded=1)
    expected = s.model.hidden[:1].clone()
    s.model.seen.fill_(-1)
    s.model.spoken.fill_(-1)
    assert torch.equal(s.runner.model_intermediate_buffer["r"]["nested"]["seen"], expected)
    assert s.codes("r") == reference.codes[3]
