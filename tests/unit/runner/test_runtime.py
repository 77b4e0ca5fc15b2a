"""What is refused before a request, and that it says what to set."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest

from common.phase import CONTRACT_VERSION
from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import Hooks
from engines.runner.runtime import check_class, check_model, check_runner, check_worker, require_phase_contract
from tests.unit.runner.stage import FakeRunner, Stage, Stock, config
from tests.unit.runner.talker import Talker

ROOT = Path(__file__).parents[3]
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
        ({"cached": True}, r"set --no-enable-prefix-caching, or have the model say .*rows_follow_from_ids = True"),
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


def test_a_batched_hook_needs_no_mtp() -> None:
    with_mtp, without = Hooks.of(Talker(batched=True)), Hooks.of(Talker(batched=True, speaks=False))
    assert with_mtp is not None
    assert without is not None
    assert with_mtp.decode_batch is not None
    assert without.decode_batch is not None
    check_model(Stage().runner, replace(with_mtp, mtp=None))


def told(worker: Any, *, chunked: bool = True, v2: bool = False) -> Any:
    return SimpleNamespace(
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(enable_chunked_prefill=chunked),
        model_config=SimpleNamespace(use_v2_model_runner=v2),
    )


class Telling:
    """Another runtime's worker: it is known by what it declares."""

    phase_contract = CONTRACT_VERSION


class Newer(Telling):
    phase_contract = "2"


class Mute:
    pass


HERE = __name__


@pytest.mark.parametrize("worker", [f"{HERE}.Telling", Telling, type("Own", (Telling,), {})])
def test_a_worker_is_known_by_what_it_declares(worker: Any) -> None:
    require_phase_contract(told(worker))


@pytest.mark.parametrize("chunked", [True, False])
def test_a_worker_that_declares_nothing_is_refused(chunked: bool) -> None:
    with pytest.raises(
        RuntimeUnsupported, match=rf"{HERE}\.Mute, which .*chunked prefill is {'on' if chunked else 'off'}.* set"
    ):
        require_phase_contract(told(f"{HERE}.Mute", chunked=chunked))


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (f"{HERE}.Newer", r"Newer declares phase contract '2', expected '1'"),
        ("auto", r"--worker-cls is auto, expected the name of a class"),
        ("no.such.Worker", r"--worker-cls is no\.such\.Worker, expected the name of a class: No module named 'no'"),
        (f"{HERE}.Missing", r"has no attribute 'Missing'"),
        (f"{HERE}.told", r"expected the name of a class: it is <function told"),
    ],
)
def test_a_worker_that_cannot_be_asked(worker: str, said: str) -> None:
    with pytest.raises(RuntimeUnsupported, match=said):
        require_phase_contract(told(worker))


OMNI_WORKER = "vllm_omni.worker.GPUARWorker"


@pytest.fixture
def omni(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A vLLM-Omni that says nothing of itself but its version."""
    package = tmp_path / "vllm_omni" / "worker"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text("class GPUARWorker: ...\n")
    (package / "broken.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("vllm_omni") and name not in before]:
        del sys.modules[name]


def installed(omni: Path, version: str) -> None:
    info = omni / f"vllm_omni-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-omni\nVersion: {version}\n")


@pytest.mark.parametrize("found", ["0.21.0rc2", "0.21.0", "0.22", "0.30.0", "0.30.1.dev3+gabc", "1.0"])
def test_vllm_omni_that_tells_phases(omni: Path, found: str) -> None:
    installed(omni, found)
    require_phase_contract(told(OMNI_WORKER))
    base = resolve_name(OMNI_WORKER)
    require_phase_contract(told(type("Derived", (base,), {})))
    with pytest.raises(
        RuntimeUnsupported, match=r"Model Runner V2 takes one token for a decode row.* model_runner: v1"
    ):
        require_phase_contract(told(OMNI_WORKER, v2=True))


@pytest.mark.parametrize("found", ["0.20.0", "0.21.0rc1", "0.9", "0.1.dev1+g0", None])
def test_vllm_omni_that_may_tell_none(omni: Path, found: str | None) -> None:
    if found is not None:
        installed(omni, found)
    said = rf"vLLM-Omni {re.escape(found or 'of unknown version')} tells no phase.* use 0\.21\.0rc2 or newer, or set"
    with pytest.raises(RuntimeUnsupported, match=said):
        require_phase_contract(told(OMNI_WORKER))
    require_phase_contract(told(OMNI_WORKER, chunked=False))
    backported = type("Backported", (resolve_name(OMNI_WORKER),), {"phase_contract": CONTRACT_VERSION})
    require_phase_contract(told(backported))


def test_a_worker_whose_module_cannot_be_imported_says_why(omni: Path) -> None:
    with pytest.raises(RuntimeUnsupported, match=r"broken\.Worker, expected .*: No module named 'no_such_library'"):
        require_phase_contract(told("vllm_omni.worker.broken.Worker"))


WITHOUT_VLLM = f"""
import sys
for name in ("vllm", "engines.runner.gpu", "engines.runner.cpu"):
    sys.modules[name] = None  # importing it fails
from types import SimpleNamespace as N
from engines.runner import require_phase_contract
require_phase_contract(N(
    parallel_config=N(worker_cls={OMNI_WORKER!r}),
    scheduler_config=N(enable_chunked_prefill=True),
    model_config=N(),
))
print("let through")
"""


def test_neither_vllm_nor_our_workers_are_needed_to_look(omni: Path) -> None:
    installed(omni, "0.30.0")
    env = {"PYTHONPATH": f"{omni}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", WITHOUT_VLLM], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "let through\n"), done.stderr


def test_the_stand_in_is_what_the_checks_ask_for() -> None:
    assert issubclass(FakeRunner, Stock)
    Stage().lay_out([])
