"""What a model may bring besides, as models for vLLM-Omni 0.30 do; what is refused by its name; what a hook is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import REFUSED, Hooks
from tests.unit.runner.stage import Request, Stage, config
from tests.unit.runner.talker import HIDDEN, Talker
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


class Closed:
    """Callable, and nobody can say with what, as compiled code may be."""

    __signature__ = 1

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("talker_mtp_validity_key", "codes", r"talker_mtp_validity_key is 'codes'; expected two strings"),
        ("talker_mtp_output_key", ("a", "b", "c"), r"talker_mtp_output_key is \('a', 'b', 'c'\); expected two strings"),
        ("on_tokens_taken_back", 1, r"on_tokens_taken_back is 1; expected a method or None"),
        ("postprocess", None, r"has_postprocess is set, postprocess is missing; expected a method"),
        ("mtp_hidden_size", "wide", r"mtp_hidden_size is 'wide'; expected a whole number above 0"),
        ("mtp_hidden_size", -1, r"mtp_hidden_size is -1; expected"),
        ("mtp_hidden_size", True, r"mtp_hidden_size is True; expected"),
        ("gpu_resident_buffer_keys", None, r"gpu_resident_buffer_keys is None; expected tuples of two strings"),
        ("gpu_resident_buffer_keys", [["a", "b"]], r"is \[\['a', 'b'\]\]; expected tuples of two strings"),
        ("gpu_resident_buffer_keys", ("a", "b"), r"is \('a', 'b'\); expected tuples of two strings"),
        ("gpu_resident_buffer_keys", {("a", 1)}, r"is {\('a', 1\)}; expected tuples of two strings"),
        ("talker_mtp", Closed(), r"talker_mtp's parameters are not known: "),
        ("talker_mtp_accepts_req_infos", True, r"talker_mtp has no req_ids, req_infos; expected parameters of these"),
        ("talker_mtp_accepts_per_row_generators", True, r"is set, and talker_mtp has no generators; expected"),
    ],
)
def test_hooks_that_do_not_go_together(attribute: str, value: Any, said: str) -> None:
    model = Talker()
    setattr(model, attribute, value)
    with pytest.raises(RuntimeUnsupported, match=rf"^model Talker: .*{said}"):
        Hooks.of(model)


@pytest.mark.parametrize(("size", "width"), [(None, HIDDEN), (0, HIDDEN), (2, 2)])
def test_the_width_of_mtps_inputs(size: int | None, width: int) -> None:
    s = Stage()
    s.model.mtp_hidden_size = size
    s.runner.attach_model()
    assert s.runner.mtp.width == width


def test_keys_that_stay_on_the_device_may_come_in_any_collection() -> None:
    model = Talker()
    model.gpu_resident_buffer_keys = [("a", "b"), ("a", "c")]
    hooks = Hooks.of(model)
    assert hooks is not None
    assert hooks.on_device == {("a", "b"), ("a", "c")}


class Named(nn.Module):
    """MTP as a module of its own: its `__call__` takes anything, its `forward` does not."""

    def __init__(self, talker: Talker) -> None:
        super().__init__()
        self.talker = talker
        self.drawn: list[bool] = []

    def forward(self, ids: Any, embeds: Any, hidden: Any, text: Any, temperature: Any, generator: Any = None) -> Any:
        assert temperature == 0.5
        self.drawn.append(generator is not None)
        return self.talker._mtp(ids, embeds, hidden, text)


def test_mtp_that_is_a_module_is_given_what_its_forward_names() -> None:
    s = Stage()
    s.runner.vllm_config = config(additional={"subtalker_sampling_params": {"temperature": 0.5, "top_k": 3}})
    s.model.talker_mtp = mtp = Named(s.model)
    s.runner.attach_model()
    assert s.runner.hooks.mtp_options >= {"temperature", "generator"}
    reference = arrive(s, "r", 3)
    s.requests["r"].extra_args = {"tts_local_seed": 7}
    s.step(("r", 0, 3))
    s.requests["r"].output.append(TOKENS[0])
    s.step(("r", 3, 1))
    assert s.codes("r") == reference.codes[3]
    assert mtp.drawn == [True]


class Compiled(nn.Module):
    """As `torch.compile` wraps a module: the one that it was is kept under this name."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self._orig_mod(*inputs, **options)


def test_a_module_that_is_compiled_takes_what_it_took() -> None:
    model = Talker()
    model.talker_mtp = Compiled(Named(model))
    hooks = Hooks.of(model)
    assert hooks is not None
    assert hooks.mtp_options == {"ids", "embeds", "hidden", "text", "temperature", "generator"}


def test_a_module_that_takes_no_memories_must_not_say_that_it_does() -> None:
    model = Talker()
    model.talker_mtp = Named(model)
    model.talker_mtp_accepts_req_infos = True
    with pytest.raises(RuntimeUnsupported, match=r"talker_mtp has no req_ids, req_infos"):
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


def test_a_model_is_named_whatever_stands_around_it(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM puts what captures graphs around a model, and gives the model itself by `get_model`."""

    class Wrapper:
        def __init__(self, model: Talker) -> None:
            self._model = model

        def __getattr__(self, name: str) -> Any:
            return getattr(self._model, name)

        def __call__(self, **inputs: Any) -> torch.Tensor:
            return self._model(**inputs)

    s = stage()
    model = s.model
    s.runner.model = Wrapper(model)
    monkeypatch.setattr(type(s.runner), "get_model", lambda self: model)
    s.runner.attach_model()
    assert s.runner.hooks.model == "Talker"
    reference = arrive(s, "r", 3, decoded=1)
    assert s.codes("r") == reference.codes[3]
