"""Whether this vLLM, its settings and the model go with the phase contract. What does not is refused before a request.

Nothing here falls back to anything: a runner that cannot tell prompt from decode does not run a model that asks.
"""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from engines.runner.errors import RuntimeUnsupported
from engines.runner.hooks import Hooks

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
OMNI_SINCE = (0, 22)
"""vLLM-Omni has the phase keys and guards MTP from here on; 0.20 and earlier have neither."""


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
    embeds = runner.supports_mm_inputs or runner.enable_prompt_embeds
    if not config.model_config.enforce_eager and not embeds:
        raise RuntimeUnsupported(
            f"model {hooks.model} has hooks, so it reads embeddings, and graphs would be captured for token ids: "
            "set --enable-prompt-embeds or --enforce-eager"
        )


def require_phase_contract(vllm_config: VllmConfig) -> None:
    """For a model that cannot work without the contract: its `__init__` calls this.

    Raises RuntimeUnsupported unless rows will come with their phase: on our workers and on vLLM-Omni from 0.22 they do.
    An older vLLM-Omni is let through with chunked prefill off, which is what its users must do; stock workers call no
    hook at all.
    """
    name = str(vllm_config.parallel_config.worker_cls)
    if is_phase_worker(name):
        return
    if name.partition(".")[0] == OMNI:
        found = _release(OMNI.replace("_", "-"))
        if found >= OMNI_SINCE:
            return
        if not vllm_config.scheduler_config.enable_chunked_prefill:
            return
        raise RuntimeUnsupported(
            f"vLLM-Omni {'.'.join(map(str, found))} tells no phase: use 0.22 or newer, or set "
            "--no-enable-chunked-prefill"
        )
    raise RuntimeUnsupported(
        f"--worker-cls is {name}, which tells a model no phase (chunked prefill is "
        f"{'on' if vllm_config.scheduler_config.enable_chunked_prefill else 'off'}): "
        f"set --worker-cls {WORKERS['cuda']}, or {WORKERS['cpu']} on CPUs"
    )


def is_phase_worker(name: str) -> bool:
    """Whether `--worker-cls` `name` is one of ours, or made from one."""
    from vllm.utils.import_utils import resolve_obj_by_qualname

    from engines.runner.gpu import PhaseWorker

    found = resolve_obj_by_qualname(name)
    return isinstance(found, type) and issubclass(found, PhaseWorker)


def _release(distribution: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version(distribution).split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return (0, 0)


def _unmatched(runner: type, lacking: list[str]) -> RuntimeUnsupported:
    try:
        here = version("vllm")
    except PackageNotFoundError:
        here = "of unknown version"
    return RuntimeUnsupported(
        f"vLLM {here}: its runner {runner.__module__}.{runner.__name__} lacks {', '.join(lacking)}, which the phase "
        "contract stands on; it was written for vLLM 0.32: install that, or run the stock worker"
    )
