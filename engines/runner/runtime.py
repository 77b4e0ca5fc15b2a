"""Whether this vLLM, its settings and the model go with the phase contract. What does not is refused before a request.

Nothing here falls back to anything: a runner that cannot tell prompt from decode does not run a model that asks.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from common.phase import CONTRACT_VERSION
from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import Hooks
from engines.runner.lastwords import last_words

if TYPE_CHECKING:
    from vllm.config import VllmConfig

METHODS = {
    "_preprocess": ("scheduler_output", "num_input_tokens", "intermediate_tensors"),
    "_model_forward": ("input_ids", "positions", "intermediate_tensors", "inputs_embeds"),
    "_on_request_state_removed": ("req_id", "req_state"),
    "load_model": (),
}
"""What the mixin overrides of a stock runner, with the parameters that it counts on."""
ATTRIBUTES = (
    "requests",
    "input_batch",
    "query_start_loc",
    "input_ids",
    "inputs_embeds",
    "max_num_reqs",
    "dtype",
    "device",
)
WORKERS = {"cpu": "engines.runner.cpu.PhaseCPUWorker", "cuda": "engines.runner.gpu.PhaseGPUWorker"}
"""Our workers, by device."""
OMNI = "vllm_omni"
OMNI_SINCE = Version("0.21.0rc2")
"""vLLM-Omni's Model Runner V1 has the phase keys and guards MTP from here on; 0.20 and earlier have neither."""
DECLARED = "phase_contract"
"""The attribute of a worker's class that says which version of the contract it keeps."""


def check_worker(worker: Any) -> None:
    """Raises RuntimeUnsupported where vLLM chose Model Runner V2: it has no `_preprocess` to stand on."""
    if getattr(worker, "use_v2_model_runner", False):
        raise RuntimeUnsupported(
            "vLLM chose Model Runner V2, the phase contract needs V1: set VLLM_USE_V2_MODEL_RUNNER=0, "
            "or run the stock worker (duet engine thinker --runner stock) for a model without hooks"
        )


def check_class(stock: type) -> None:
    """Raises RuntimeUnsupported for a runner class that lacks what the mixin overrides."""
    lacking = []
    for name, expected in METHODS.items():
        method = getattr(stock, name, None)
        if method is None:
            lacking.append(name)
            continue
        parameters = inspect.signature(method).parameters
        lacking += [f"{name}({p})" for p in expected if p not in parameters]
    if lacking:
        raise _unmatched(stock, lacking)


def check_runner(runner: Any) -> None:
    """Raises RuntimeUnsupported for a runner that lacks what the mixin reads."""
    lacking = [name for name in ATTRIBUTES if not hasattr(runner, name)]
    for holder, name in (
        ("input_batch", "num_computed_tokens_cpu"),
        ("input_batch", "req_ids"),
        ("query_start_loc", "np"),
    ):
        if hasattr(runner, holder) and not hasattr(getattr(runner, holder), name):
            lacking.append(f"{holder}.{name}")
    if lacking:
        raise _unmatched(type(runner), lacking)


def check_model(runner: Any, hooks: Hooks) -> None:
    """Raises RuntimeUnsupported for settings under which a model with hooks would be fed wrongly."""
    config = runner.vllm_config
    if config.parallel_config.pipeline_parallel_size > 1:
        found = config.parallel_config.pipeline_parallel_size
        raise RuntimeUnsupported(
            f"model {hooks.model} has hooks: --pipeline-parallel-size is {found}, expected 1: a decode row needs the "
            "last stage's hidden state in the first"
        )
    if config.speculative_config is not None:
        raise RuntimeUnsupported(
            f"model {hooks.model} has hooks: --speculative-config is set, expected none: rows of drafts cannot be "
            "fed again after a preemption"
        )
    if config.cache_config.enable_prefix_caching and not hooks.cacheable:
        raise RuntimeUnsupported(
            f"model {hooks.model} has hooks: prefix caching is on, which finds KV by token ids, and its rows may come "
            "from texts, seeds and codes besides: set --no-enable-prefix-caching, or have the model say that equal ids "
            "are equal rows (rows_follow_from_ids = True)"
        )
    embeds = runner.supports_mm_inputs or runner.enable_prompt_embeds
    if not config.model_config.enforce_eager and not embeds:
        raise RuntimeUnsupported(
            f"model {hooks.model} has hooks, so it reads embeddings, and graphs would be captured for token ids: "
            "set --enable-prompt-embeds or --enforce-eager"
        )


@last_words()
def require_phase_contract(vllm_config: VllmConfig) -> None:
    """For a model that cannot work without the contract: its `__init__` calls this, or its class says
    `requires_phase_contract = True`.

    Raises RuntimeUnsupported unless rows will come with their phase: where the worker's class declares it, and on
    vLLM-Omni since 0.21.0rc2. An older vLLM-Omni is let through with chunked prefill off, which is what its users must
    do; stock workers call no hook at all.
    """
    worker = worker_class(vllm_config)
    found = contract_of(worker)
    if found == CONTRACT_VERSION:
        return
    if found is not None:
        raise RuntimeUnsupported(
            f"{_name(worker)} declares phase contract {found!r}, expected {CONTRACT_VERSION!r}: "
            "install a release of it that goes with this one"
        )
    if any(base.__module__.partition(".")[0] == OMNI for base in worker.__mro__):
        _require_of_omni(vllm_config)
        return
    raise RuntimeUnsupported(
        f"--worker-cls is {_name(worker)}, which tells a model no phase (chunked prefill is "
        f"{'on' if vllm_config.scheduler_config.enable_chunked_prefill else 'off'}): "
        f"set --worker-cls {WORKERS['cuda']}, or {WORKERS['cpu']} on CPUs"
    )


def worker_class(vllm_config: VllmConfig) -> type:
    """What `--worker-cls` names. Nothing else is imported for it: it may be another runtime's, on another vLLM.

    Raises RuntimeUnsupported for a name that is no class here.
    """
    name = vllm_config.parallel_config.worker_cls
    if isinstance(name, type):
        return name
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise RuntimeUnsupported(f"--worker-cls is {name}, expected the name of a class: {e}") from e
    if not isinstance(found, type):
        raise RuntimeUnsupported(f"--worker-cls is {name}, expected the name of a class: it is {found!r}")
    return found


def contract_of(worker: type) -> str | None:
    """The version of the contract that `worker` declares to keep, as `phase_contract`; None if it keeps none."""
    return getattr(worker, DECLARED, None)


def _require_of_omni(vllm_config: VllmConfig) -> None:
    if getattr(vllm_config.model_config, "use_v2_model_runner", False):
        raise RuntimeUnsupported(
            "vLLM-Omni's Model Runner V2 takes one token for a decode row, whatever its phase: "
            "set model_runner: v1 for this stage"
        )
    found = _omni_version()
    known = found is not None and found >= OMNI_SINCE
    if known or not vllm_config.scheduler_config.enable_chunked_prefill:
        return
    raise RuntimeUnsupported(
        f"vLLM-Omni {found or 'of unknown version'} tells no phase, as far as is known: use {OMNI_SINCE} or newer, or "
        f"set --no-enable-chunked-prefill; a worker of its own that does tell says {DECLARED} = {CONTRACT_VERSION!r}"
    )


def _omni_version() -> Version | None:
    try:
        return Version(version(OMNI.replace("_", "-")))
    except (PackageNotFoundError, InvalidVersion):
        return None


def _name(found: type) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def _unmatched(runner: type, lacking: list[str]) -> RuntimeUnsupported:
    try:
        here = version("vllm")
    except PackageNotFoundError:
        here = "of unknown version"
    return RuntimeUnsupported(
        f"vLLM {here}: its runner {_name(runner)} lacks {', '.join(lacking)}, which the phase "
        "contract stands on; it was written for vLLM 0.32: install that, or run the stock worker"
    )
