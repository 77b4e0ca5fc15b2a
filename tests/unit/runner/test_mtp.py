"""What MTP is given besides its rows: seeds, sampling settings, memories; and where its codes go."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.runner.stage import Request, Stage, config
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import TOKENS, arrive, prompt_of


class Sampled(Talker):
    """Draws a code a row from the generator that it is given."""

    generators: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.talker_mtp_accepts_per_row_generators = self.generators
        self.talker_mtp = self._sampled
        self.options: list[dict[str, Any]] = []

    def _sampled(self, *inputs: torch.Tensor, **options: Any) -> Any:
        rows, codes = self._mtp(*inputs)
        self.options.append(options)
        streams = options.get("generators") or [options.get("generator")] * len(codes)
        drawn = [torch.randint(1 << 20, (1,), generator=stream) for stream in streams]
        return rows, torch.cat([codes, torch.stack(drawn)], dim=1)


class Streams(Sampled):
    generators = True


def speak(model: Sampled, requests: dict[str, int | None], *, frames: int = 3) -> dict[str, list[int]]:
    """The drawn codes of requests with these seeds that decode together."""
    s = Stage(model=model)
    drawn: dict[str, list[int]] = {name: [] for name in requests}
    for k, (name, seed) in enumerate(requests.items()):
        extra = {} if seed is None else {"tts_local_seed": seed}
        s.requests[name] = Request(prompt_of(k, 3), extra_args=extra)
        s.step((name, 0, 3))
    for frame in range(frames):
        for name in requests:
            s.requests[name].output.append(TOKENS[frame])
        s.step(*((name, 3 + frame, 1) for name in requests))
        for name in requests:
            drawn[name].append((s.codes(name) or [])[-1])
    return drawn


@pytest.mark.parametrize("model", [Sampled, Streams])
def test_a_seeded_request_says_the_same_whoever_is_beside_it(model: type[Sampled]) -> None:
    by_itself = speak(model(), {"a": 7})["a"]
    together = speak(model(), {"b": None, "a": 7, "c": 8})
    assert together["a"] == by_itself
    assert together["c"] == speak(model(), {"c": 8})["c"]
    assert len(set(by_itself)) == 3, "the stream goes on from step to step"


def test_one_generator_each_where_the_model_takes_several() -> None:
    model = Streams()
    speak(model, {"a": 7, "b": None}, frames=1)
    (options,) = model.options
    assert [g is None for g in options["generators"]] == [False, True]


def test_a_name_that_comes_again_starts_its_stream_anew() -> None:
    s = Stage(model=Sampled())
    said = []
    for _ in range(2):
        s.requests["r"] = Request(prompt_of(0, 3), extra_args={"tts_local_seed": 5})
        s.step(("r", 0, 3))
        s.requests["r"].output.append(TOKENS[0])
        s.step(("r", 3, 1))
        said.append(s.codes("r"))
        s.finish("r")
    assert said[0] == said[1]


def test_sampling_settings_reach_a_model_that_takes_them() -> None:
    model = Sampled()
    s = Stage(model=model)
    s.runner.vllm_config = config(additional={"subtalker_sampling_params": {"temperature": 0.5, "top_k": 9}})
    s.runner.attach_model()
    arrive(s, "r", 2, decoded=1)
    assert model.options == [{"do_sample": None, "temperature": 0.5, "top_k": 9, "top_p": None}]


def test_a_model_is_given_no_argument_that_it_does_not_know() -> None:
    seen = []

    class Picky(Talker):
        def __post_init__(self) -> None:
            self.talker_mtp = self._picky

        def _picky(self, ids: Any, embeds: Any, hidden: Any, text: Any, top_k: Any = "unset") -> Any:
            seen.append(top_k)
            return self._mtp(ids, embeds, hidden, text)

    s = Stage(model=Picky())
    arrive(s, "r", 2, decoded=1)
    assert seen == [None]


def test_memories_reach_a_model_that_takes_them() -> None:
    model = Sampled()
    model.talker_mtp_accepts_req_infos = True
    s = Stage(model=model)
    arrive(s, "a", 2, decoded=0)
    arrive(s, "b", 2, decoded=0)
    s.step(("b", 2, 1), ("a", 2, 1))
    assert model.options[-1]["req_ids"] == ["b", "a"]
    assert [info["request_id"] for info in model.options[-1]["req_infos"]] == ["b", "a"]


def test_each_row_that_goes_alone_brings_its_own_memory() -> None:
    """Seeded rows, in a model whose MTP takes one generator at a time."""
    model = Sampled()
    model.talker_mtp_accepts_req_infos = True
    s = Stage(model=model)
    for k, name in enumerate("ab"):
        s.requests[name] = Request(prompt_of(k, 2), extra_args={"tts_local_seed": k})
        s.step((name, 0, 2))
        s.requests[name].output.append(TOKENS[0])
    s.step(("b", 2, 1), ("a", 2, 1))
    assert [options["req_ids"] for options in model.options] == [["b"], ["a"]]
    assert [[info["request_id"] for info in options["req_infos"]] for options in model.options] == [["b"], ["a"]]


def test_codes_are_kept_where_the_model_wants_them() -> None:
    model = Talker()
    model.talker_mtp_output_key = ("frames", "newest")
    s = Stage(model=model)
    reference = arrive(s, "r", 2, decoded=1)
    kept = s.runner.model_intermediate_buffer["r"]
    assert kept["frames"]["newest"].tolist() == [reference.codes[2]]
    assert "codes" not in kept


def test_a_model_may_give_no_codes() -> None:
    class Hushed(Talker):
        def _mtp(self, *inputs: Any) -> Any:
            return super()._mtp(*inputs)[0], None

    s = Stage(model=Hushed())
    arrive(s, "r", 2, decoded=2)
    assert s.codes("r") is None


def test_forward_takes_the_rows_that_it_was_given() -> None:
    """The name and the arguments are vLLM-Omni's; other rows than those that were gathered are no one's."""
    s = Stage()
    arrive(s, "r", 2, decoded=1)
    with pytest.raises(AssertionError):
        s.runner._talker_mtp_forward(["another"], s.runner.inputs_embeds.gpu, [0])
