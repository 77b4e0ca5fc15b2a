"""What a model may bring besides, as models for vLLM-Omni 0.30 do; what is refused by its name; what a hook is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import REFUSED, Hooks
from tests.unit.runner.stage import Request, Stage, config
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import TOKENS, Make, arrive, prompt_of


@pytest.mark.parametrize("attribute", REFUSED)
def test_what_other_runners_do_besides_is_refused_by_its_name(attribute: str) -> None:
    model = Talker()
    setattr(model, attribute, False)
    assert Hooks.of(model) is not None
    setattr(model, attribute, True)
    with pytest.raises(RuntimeUnsupported, match=rf"^model Talker has {attribute}; expected none of them"):
        Hooks.of(model)
    model.has_preprocess = False
    assert Hooks.of(model) is None, "a model that takes no part is not looked at"


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("talker_mtp_validity_key", "codes", r"talker_mtp_validity_key is 'codes'; expected two strings"),
        ("talker_mtp_output_key", ("a", "b", "c"), r"talker_mtp_output_key is \('a', 'b', 'c'\); expected two strings"),
        ("on_tokens_taken_back", 1, r"on_tokens_taken_back is 1; expected a method or None"),
        ("postprocess", None, r"has_postprocess is set, postprocess is missing; expected a method"),
        ("talker_mtp_accepts_req_infos", True, r"talker_mtp has no req_ids, req_infos; expected parameters of these"),
        ("talker_mtp_accepts_per_row_generators", True, r"is set, and talker_mtp has no generators; expected"),
    ],
)
def test_hooks_that_do_not_go_together(attribute: str, value: Any, said: str) -> None:
    model = Talker()
    setattr(model, attribute, value)
    with pytest.raises(RuntimeUnsupported, match=rf"^model Talker: .*{said}"):
        Hooks.of(model)


def test_settings_of_mtp_must_be_an_object() -> None:
    s = Stage()
    s.runner.vllm_config = config(additional={"subtalker_sampling_params": "greedy"})
    with pytest.raises(
        RuntimeUnsupported, match=r"--additional-config: subtalker_sampling_params is 'greedy'; expected"
    ):
        s.runner.attach_model()


class Told(Talker):
    """Keeps what its hooks are told, each a copy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[dict[str, Any]] = []
        self.seen: list[tuple[int, set[str]]] = []

    def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
        self.told.append(dict(info))
        return super().preprocess(input_ids, input_embeds, **info)

    def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: Any) -> Any:
        self.told += [dict(info) for info in req_infos]
        return super()._decode_batch(input_ids=input_ids, req_infos=req_infos)

    def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
        self.seen.append((len(hidden), set(info)))
        return super().postprocess(hidden)


@pytest.mark.parametrize("batched", [False, True])
def test_what_a_requests_sampling_parameters_say_reaches_its_hooks(stage: Make, batched: bool) -> None:
    s = stage(Told(batched=batched))
    s.requests["r"] = Request(prompt_of(0, 3), extra_args={"voice": "a"}, seed=5, max_tokens=7)
    s.step(("r", 0, 3))
    s.requests["r"].output.append(TOKENS[0])
    s.step(("r", 3, 1))
    for info in s.model.told:
        assert (info["_omni_seed"], info["_omni_max_tokens"]) == (5, 7)
        assert info["sampling_extra_args"] == {"voice": "a"}
    assert [(info["duplex_token_offset"], info["duplex_prompt_len"]) for info in s.model.told] == [(0, 3), (3, 3)]


def test_a_new_prompt_brings_new_settings(stage: Make) -> None:
    """Streaming input: the parameters that came with it are those that count."""
    s = stage(Told())
    s.requests["r"] = Request(prompt_of(0, 3), extra_args={"voice": "a"}, seed=5)
    s.step(("r", 0, 3))
    s.requests["r"] = Request(prompt_of(0, 5), extra_args={"voice": "b"}, seed=6)
    s.step(("r", 3, 2))
    s.requests["r"].output.append(TOKENS[0])
    s.step(("r", 5, 1))
    assert [(info["sampling_extra_args"]["voice"], info["_omni_seed"]) for info in s.model.told] == [
        ("a", 5),
        ("b", 6),
        ("b", 6),
    ]


def test_a_request_without_sampling_parameters_has_no_settings(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "sampling_params", None)
    s = stage(Told())
    arrive(s, "r", 3)
    s.step(("r", 0, 3))
    (info,) = s.model.told
    assert (info["sampling_extra_args"], info["_omni_seed"], info["_omni_max_tokens"]) == ({}, None, None)


def test_a_model_cannot_change_what_is_the_runners(stage: Make) -> None:
    class Meddler(Told):
        def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
            return {**super().postprocess(hidden), "_omni_seed": 1, "sampling_extra_args": {"voice": "mine"}}

    s = stage(Meddler())
    arrive(s, "r", 3, decoded=1)
    assert s.model.told[-1]["_omni_seed"] is None
    assert s.model.told[-1]["sampling_extra_args"] == {}


def test_the_whole_steps_hidden_states_and_no_memory_for_a_model_that_wants_it_so(stage: Make) -> None:
    s = stage(Told())
    arrive(s, "a", 3)
    arrive(s, "b", 4)
    s.step(("a", 0, 3), ("b", 0, 2))
    assert [span for span, _ in s.model.seen] == [3, 2]
    assert "sampling_extra_args" in s.model.seen[0][1]
    s.model.seen.clear()
    s.model.postprocess_uses_hidden_states = s.model.postprocess_uses_req_infos = False
    s.runner.attach_model()
    s.step(("a", 0, 3), ("b", 0, 2), pad=2)
    assert s.model.seen == [(7, {"multimodal_outputs"})] * 2


def test_codes_are_said_to_be_valid_where_a_model_asks_for_it(stage: Make) -> None:
    s = stage()
    s.model.talker_mtp_validity_key = ("codes", "valid")
    s.runner.attach_model()
    arrive(s, "r", 3)
    s.step(("r", 0, 3))
    kept = s.runner.model_intermediate_buffer["r"]
    assert "codes" not in kept
    s.requests["r"].output.append(TOKENS[0])
    s.step(("r", 3, 1))
    assert kept["codes"]["valid"].dtype == torch.bool
    assert kept["codes"]["valid"].shape == ()
    assert bool(kept["codes"]["valid"])


def test_a_prompt_of_embeddings_alone_has_a_length(stage: Make) -> None:
    """vLLM knows no ids of it then; its length is all there is to tell the phase by."""
    s = stage()
    reference = arrive(s, "r", 5)
    s.requests["r"].by_embeddings = True
    s.step(("r", 0, 4))
    s.step(("r", 4, 1))
    assert s.model.mtp_batches == []
    s.requests["r"].output.append(TOKENS[0])
    s.step(("r", 5, 1))
    assert [(c.prompt_len, c.computed, c.is_prefill) for c in s.model.calls] == [
        (5, 0, True),
        (5, 4, True),
        (5, 5, False),
    ]
    assert s.codes("r") == reference.codes[5]


def test_mtp_runs_in_what_the_runner_gives_it() -> None:
    """Its layers may be vLLM's, which look for a forward context."""
    inside: list[str] = []

    class Context:
        def __enter__(self) -> None:
            inside.append("in")

        def __exit__(self, *_: Any) -> None:
            inside.append("out")

    class Looks(Talker):
        def _mtp(self, *inputs: Any) -> Any:
            inside.append("mtp")
            return super()._mtp(*inputs)

    s = Stage(model=Looks())
    s.runner.mtp_context = Context
    s.runner.attach_model()
    arrive(s, "r", 3, decoded=1)
    assert inside == ["in", "mtp", "out"]


def test_drafts_are_fed_and_not_kept(stage: Make) -> None:
    """A span that runs past the newest known token ends in drafts; nobody has verified them."""
    s = stage()
    arrive(s, "r", 3, decoded=0)
    request = s.requests["r"]
    drafts = SimpleNamespace(ids=[*request.ids, TOKENS[0], TOKENS[1]])
    request.token = lambda position: drafts.ids[position]  # type: ignore[method-assign]
    s.step(("r", 3, 2))
    fed = s.runner.kept.fed["r"]
    assert fed.known(range(6)) == [3]
    assert fed.until == 4
