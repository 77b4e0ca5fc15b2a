"""What the phase-aware runner adds to a decode step: `python -m tests.bench.runner`, or `make bench-runner`.

16 requests decode in one engine in this process. Step by step the worker's runner is made stock vLLM's class or ours in
turns, so that both meet the same requests at the same lengths on the same machine at the same moment. What counts is
CPU time of the worker's part of a step, `execute_model` and `sample_tokens`, of all threads.

| model | its hooks |
| --- | --- |
| no hooks | none: what every text model pays |
| batched | `preprocess_decode_batch`, `talker_mtp` and `postprocess`, as a talker has them |
| scalar | the same with `preprocess`, a call a row |
| async | batched, and what is remembered of each row under async scheduling, where tokens may be taken back |

What the hooks themselves do, MTP among it, is the model's work and not the runner's: their time is taken out, and told
beside. One thing that they do is not new: with hooks the forward pass is given embeddings, and looks none up. So the
price of one look-up for all rows, which stock's forward pass pays, is put back (`look-up`), once: what is added is what
the runner does for the contract, its calls of the hooks included.
"""

from __future__ import annotations

import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engines.runner.runtime import WORKERS
from tests.bench.hooked import attach, embed_once

REQUESTS = 16
PROMPT = 64
WARM = 40
PAIRS = 300
STEPS = 2 * (WARM + PAIRS) + 4
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "HF_HUB_OFFLINE": "1",
}
"""Must be set before vLLM is imported."""


@dataclass
class Clock:
    """Time of calls, nanoseconds, since it was last read.

    `now` is CPU time of all threads for the worker's. Hooks run in one thread, in microseconds, of which reading that
    clock is a good part: for them it is time that passes, and medians leave out what else the machine did.
    """

    now: Callable[[], int]
    spent: int = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)  # the runner looks at a hook's parameters
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent += self.now() - start

        return timed

    def read(self) -> int:
        spent, self.spent = self.spent, 0
        return spent


class Step(NamedTuple):
    """Nanoseconds of the worker's part of a step, without and in the model's hooks."""

    worker: int
    hooks: int


@dataclass
class Bench:
    """One engine with 16 requests in the midst of their answers."""

    engine: Any
    runner: Any
    clock: Clock
    hooks: Clock
    ours: type

    def __post_init__(self) -> None:
        for name in ("execute_model", "sample_tokens"):
            setattr(self.runner, name, self.clock.around(self._of_the_moment(name)))

    def _of_the_moment(self, name: str) -> Callable[..., Any]:
        """The method of the class that the runner has when it is called."""
        return lambda *args, **kwargs: getattr(type(self.runner), name)(self.runner, *args, **kwargs)

    def step(self, kind: type) -> Step:
        """One step with a runner of that class."""
        self.runner.__class__ = kind
        self.engine.step()
        hooks = self.hooks.read()
        step = Step(self.clock.read() - hooks, hooks)
        if kind is not self.ours:
            self._tell_fed()
        return step

    def _tell_fed(self) -> None:
        """A runner refuses to go on behind rows that it has not fed: it is told what stock has fed in its turn."""
        if self.runner.hooks is None:
            return
        kept = self.runner.kept
        with torch.inference_mode():
            for fed in kept.fed.values():
                (slot,) = kept.pool.put(self.runner.inputs_embeds.gpu, self.runner.input_ids.gpu, [0])
                fed.keep(max(fed.until, PROMPT), slot)

    def pairs(self, stock: type) -> list[tuple[Step, Step]]:
        """Steps of both kinds side by side, each first in turn."""
        ours = self.ours
        for _ in range(WARM):
            self.step(ours)
            self.step(stock)
        found = []
        for k in range(PAIRS):
            if k % 2:
                mine, theirs = self.step(ours), self.step(stock)
            else:
                theirs, mine = self.step(stock), self.step(ours)
            found.append((theirs, mine))
        return found


def started(model: Path, worker: str) -> Any:
    """A vLLM engine in this process, its worker in it too."""
    from vllm import LLM

    llm = LLM(
        model=str(model),
        worker_cls=worker,
        distributed_executor_backend="uni",
        enforce_eager=True,
        dtype="float32",
        block_size=32,
        max_model_len=2048,
        max_num_seqs=REQUESTS,
        num_gpu_blocks_override=512,
        enable_prefix_caching=False,
        disable_log_stats=True,
        async_scheduling=False,
    )
    return llm.llm_engine


def measure(engine: Any, runner: Any, hooks: str, stock: type, ours: type) -> list[tuple[Step, Step]]:
    """New requests with those hooks, from their prompts on."""
    from vllm import SamplingParams

    runner.__class__ = ours
    worker, model = Clock(time.process_time_ns), Clock(time.perf_counter_ns)
    attach(runner, hooks, model.around)
    params = SamplingParams(max_tokens=STEPS, temperature=0, ignore_eos=True)
    for k in range(REQUESTS):
        prompt = {"prompt_token_ids": [3 + (7 * k + n) % 900 for n in range(PROMPT)]}
        engine.add_request(f"{hooks}-{k}", prompt, params)
    found = Bench(engine, runner, worker, model, ours).pairs(stock)
    runner.__class__ = ours
    while engine.has_unfinished_requests():
        engine.step()
    return found


def look_up(runner: Any) -> float:
    """Nanoseconds of one look-up of embeddings for all rows."""
    clock = Clock(time.perf_counter_ns)
    timed = clock.around(embed_once)
    found = []
    for _ in range(PAIRS):
        timed(runner, REQUESTS)
        found.append(clock.read())
    return statistics.median(found)


def report(hooks: str, pairs: list[tuple[Step, Step]], moved: float) -> str:
    """`moved` is what the hooks did in place of the forward pass, nanoseconds; of no hooks nothing."""
    own = statistics.median(mine.hooks for _, mine in pairs) / 1e3
    back = moved / 1e3 if own else 0.0
    stock = statistics.median(theirs.worker for theirs, _ in pairs) / 1e3
    added = statistics.median(mine.worker - theirs.worker for theirs, mine in pairs) / 1e3 + back
    told = f"stock {stock:6.0f} us   added {added:+6.0f} us   {100 * added / stock:+5.1f} %"
    return f"{hooks:8}  {told}   hooks {own:5.0f} us   look-up {back:3.0f} us"


def main() -> None:
    os.environ.update(ENVIRONMENT)
    torch.set_num_threads(1)  # others would wait for work, and their waiting is CPU time of whoever takes longer
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    from engines.runner.cpu import PhaseCPURunner
    from engines.tiny import make_text

    print(f"a decode step of {REQUESTS} requests, median of {PAIRS} pairs, CPU time of the worker")
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(io.StringIO()):
            engine = started(make_text(Path(folder) / "tiny"), WORKERS["cpu"])
        runner = engine.model_executor.driver_worker.worker.model_runner
        for hooks in ("none", "batched", "scalar", "async"):
            pairs = measure(engine, runner, hooks, CPUModelRunner, PhaseCPURunner)
            print(report(hooks, pairs, look_up(runner)), flush=True)


if __name__ == "__main__":
    main()
