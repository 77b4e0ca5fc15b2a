"""What is refused before a request, and that it says what to set."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from engines.runner import runtime
from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import Hooks
from engines.runner.runtime import check_class, check_model, check_runner, check_worker, require_phase_contract
from tests.unit.runner.stage import FakeRunner, Stage, Stock, config
from tests.unit.runner.talker import Talker

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
quiet = pytest.mark.filterwarnings("ignore")


def test_model_runner_v2_is_refused() -> None:
    with pytest.raises(RuntimeUnsupported, match=r"Model Runner V2, .* set VLLM_USE_V2_MODEL_RUNNER=0"):
        check_worker(SimpleNamespace(use_v2_model_runner=True))
    check_worker(SimpleNamespace(use_v2_model_runner=False))
    check_worker(SimpleNamespace())  # a vLLM that has no other than V1


def test_a_runner_class_that_lacks_what_is_overridden() -> None:
    class Older:
        def _preprocess(self, scheduler_output: Any) -> None: ...
        def load_model(self) -> None: ...

    with pytest.raises(RuntimeUnsupported) as error:
        check_class(Older)
    said = str(error.value)
    assert "_preprocess(num_input_tokens), _preprocess(intermediate_tensors), _model_forward, _on_request_st" in said
    assert "it was written for vLLM 0.32" in said
    assert "Older" in said


def test_a_runner_that_lacks_what_is_read() -> None:
    runner = Stage().runner
    runner.lay_out = None
    runner.input_batch = SimpleNamespace(req_ids=[])
    del runner.requests
    with pytest.raises(
        RuntimeUnsupported, match=r"FakeRunner lacks requests, input_batch.num_computed_tokens_cpu, which"
    ):
        check_runner(runner)


@needs_vllm
@quiet
def test_this_vllm_is_one_that_it_was_written_for() -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    check_class(GPUModelRunner)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stages": 2}, r"model Talker has hooks: --pipeline-parallel-size is 2, expected 1"),
        ({"speculative": object()}, r"--speculative-config is set, expected none"),
        ({"eager": False}, r"set --enable-prompt-embeds or --enforce-eager"),
    ],
)
def test_settings_under_which_hooks_cannot_work(changes: dict[str, Any], said: str) -> None:
    runner = Stage().runner
    runner.vllm_config = config(**changes)
    with pytest.raises(RuntimeUnsupported, match=said):
        runner.attach_model()
    runner.model = SimpleNamespace(has_preprocess=False)
    runner.attach_model()  # a model without hooks may have all of them
    assert runner.hooks is None


def test_graphs_for_embeddings_are_welcome() -> None:
    runner = Stage(prompt_embeds=True).runner
    runner.vllm_config = config(eager=False)
    runner.attach_model()
    assert runner.hooks is not None


class Unfinished:
    has_preprocess = True


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({}, r"model Unfinished: has_preprocess is set, preprocess is missing"),
        ({"preprocess": 1}, r"preprocess is 1; expected a method or None"),
        ({"preprocess": print, "talker_mtp": "x"}, r"talker_mtp is 'x'; expected a method or None"),
        ({"preprocess": print, "talker_mtp_output_key": "codes"}, r"output_key is 'codes'; expected two strings"),
    ],
)
def test_a_model_whose_hooks_are_none(attributes: dict[str, Any], said: str) -> None:
    model = Unfinished()
    vars(model).update(attributes)
    with pytest.raises(RuntimeUnsupported, match=said):
        Hooks.of(model)


def test_a_batched_hook_counts_only_beside_mtp() -> None:
    with_mtp, without = Hooks.of(Talker(batched=True)), Hooks.of(Talker(batched=True, speaks=False))
    assert with_mtp is not None
    assert without is not None
    assert with_mtp.decode_batch is not None
    assert without.decode_batch is None
    check_model(Stage().runner, replace(with_mtp, mtp=None))


def told(worker: str, *, chunked: bool) -> Any:
    return SimpleNamespace(
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(enable_chunked_prefill=chunked),
    )


STOCK = "vllm.v1.worker.gpu_worker.Worker"


@needs_vllm
@quiet
@pytest.mark.parametrize("chunked", [True, False])
def test_a_model_that_needs_the_contract(chunked: bool) -> None:
    require_phase_contract(told("engines.runner.gpu.PhaseGPUWorker", chunked=chunked))
    with pytest.raises(
        RuntimeUnsupported, match=rf"{STOCK}, which .*chunked prefill is {'on' if chunked else 'off'}.* set"
    ):
        require_phase_contract(told(STOCK, chunked=chunked))


@pytest.mark.parametrize(
    ("found", "chunked", "refused"),
    [((0, 30), True, False), ((0, 22), True, False), ((0, 20), True, True), ((0, 20), False, False)],
)
def test_such_a_model_on_vllm_omni(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], chunked: bool, refused: bool
) -> None:
    monkeypatch.setattr(runtime, "is_phase_worker", lambda name: False)
    monkeypatch.setattr(runtime, "_release", lambda distribution: found)
    asked = told("vllm_omni.worker.gpu_ar_worker.GPUARWorker", chunked=chunked)
    if refused:
        with pytest.raises(
            RuntimeUnsupported, match=r"vLLM-Omni 0.20 tells no phase: use 0.22 or newer, or set --no-en"
        ):
            require_phase_contract(asked)
    else:
        require_phase_contract(asked)


def test_the_stand_in_is_what_the_checks_ask_for() -> None:
    assert issubclass(FakeRunner, Stock)
    Stage().lay_out([])
