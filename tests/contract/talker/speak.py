"""`python -m tests.contract.talker.speak JOB`: speaks cases on a real engine in this process, and prints what came.

The job is JSON: `talker` (folder), `cases` (file), `engine` (vLLM's arguments), and for each request `speak`: `case`,
and optionally `pace` (steps between two text tokens; 0 tells all at once; null only when the others are done),
`residual`, `seed`, `temperature`, `silent` (media rows are zero), `stop` (the oracle's code of that step is the end).
`chunks` cuts what is told of a prompt into so many frames.

One line `RESULT {…}`: for each request `first`, `codes` and the step in which it ended; `preemptions` of the engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.contract.talker.oracle import FRAMES, SPEAKER


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory(prefix="duet-") as folder:
        os.environ["DUET_CHANNEL"] = f"ipc://{folder}/codes"
        print("RESULT " + json.dumps(_spoken(job)), flush=True)


def _spoken(job: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM

    from common.channel import Publisher
    from engines.talker.plugin import register

    register()
    cases = json.loads(Path(job["cases"]).read_text())
    llm = LLM(
        model=job["talker"],
        skip_tokenizer_init=True,
        worker_cls="engines.talker.cpu.TalkerCPUWorker",
        worker_extension_cls="engines.talker.worker.Speaking",
        scheduler_cls="engines.talker.scheduler.TalkerScheduler",
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=512,
        block_size=32,
        disable_log_stats=False,
        **job["engine"],
    )
    with Publisher() as thinker:
        said = [_Said(f"case-{at}", cases[ask["case"]], ask, thinker) for at, ask in enumerate(job["speak"])]
        for one in said:
            one.add(llm, job.get("chunks", 1))
        steps = _run(llm, said)
        for one in said:
            llm.collective_rpc("end_codes", args=(one.name, None))
        codes = asyncio.run(_codes([one.name for one in said]))
    found = [m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions"]
    results = [{"first": one.first, "codes": got, "ended": one.ended} for one, got in zip(said, codes, strict=True)]
    return {"requests": results, "steps": steps, "preemptions": sum(found)}


class _Said:
    """One request: what its Thinker tells, and what the engine says to it."""

    def __init__(self, name: str, case: dict[str, Any], ask: dict[str, Any], thinker: Any) -> None:
        from common.channel.reference import Key

        self.name, self.first, self.ended = name, list[int](), -1
        self._case, self._ask, self._thinker = case, ask, thinker
        self._key = Key(name, "thinker")
        self._told = 0

    def add(self, llm: Any, chunks: int) -> None:
        import torch
        from vllm import SamplingParams

        from common.conditioning import frame_rows
        from engines.channel import to_rows
        from engines.talker.config import marks_of
        from engines.talker.request import GREEDY, Residual, Speech
        from engines.talker.script import Script

        case, ask, config = self._case, self._ask, llm.llm_engine.model_config.hf_config
        prompt = case["prompt"]
        size = -(-len(prompt) // chunks)
        for begin in range(0, len(prompt), size):
            at = [k for k, p in enumerate(case["media_at"]) if begin <= p < begin + size]
            rows = torch.tensor([case["media"][k] for k in at]) * (0.0 if ask.get("silent") else 1.0)
            media = {"media": to_rows(rows)} if at else {}
            ids, places = prompt[begin : begin + size], [case["media_at"][k] for k in at]
            self._thinker.publish(self._key, frame_rows(len(prompt), begin, ids, places, **media))
        stop = ask.get("stop")
        residual = Residual(**ask["residual"]) if "residual" in ask else GREEDY
        reference = str(self._thinker.reference(self._key))
        speech = Speech((reference,), ask.get("speaker", SPEAKER), self.name, residual)
        params = SamplingParams(
            temperature=ask.get("temperature", 0),
            top_k=50,
            seed=ask.get("seed"),
            repetition_penalty=1.05,
            max_tokens=FRAMES + 1,
            stop_token_ids=[config.codec_eos_token_id if stop is None else case["first"][stop]],
            detokenize=False,
            extra_args=speech.extra_args(ask.get("seed")),
        )
        length = Script.of(prompt, marks_of(config)).length
        llm.llm_engine.add_request(self.name, {"prompt_token_ids": [config.codec_pad_id] * length}, params)

    def tell(self, step: int, alone: bool) -> None:
        """What the Thinker says in this step. The last sampled id is never told."""
        from common.conditioning import frame_rows

        pace, said, prompt = self._ask.get("pace", 0), self._case["said"][:-1], self._case["prompt"]
        due = len(said) if pace == 0 or (pace is None and alone) else 0 if pace is None else step // pace
        while self._told < min(due, len(said)):
            at = len(prompt) + self._told
            self._thinker.publish(self._key, frame_rows(len(prompt), at, said[self._told : self._told + 1]))
            self._told += 1
        if self._told == len(said):
            self._thinker.close(self._key)


def _run(llm: Any, said: list[_Said]) -> int:
    """Steps until all have ended."""
    open_, step = {one.name: one for one in said}, 0
    while open_:
        step += 1
        waiting = [one for one in open_.values() if one._ask.get("pace", 0) is None]
        for one in open_.values():
            one.tell(step, alone=len(waiting) == len(open_))
        for output in llm.llm_engine.step():
            one = open_[output.request_id]
            if output.finished:
                one.first, one.ended = list(output.outputs[0].token_ids), step
                del open_[one.name]
    return step


async def _codes(names: list[str]) -> list[list[list[int]]]:
    from common.channel import Puller
    from engines.channel import reference, to_tensor

    async def one(puller: Puller, name: str) -> list[list[int]]:
        rows: list[list[int]] = []
        async with aclosing(puller.frames(reference(name, "talker"))) as frames:
            async for frame in frames:
                rows += to_tensor(frame.rows["codes"]).tolist()
        return rows

    async with Puller() as puller:
        return [await one(puller, name) for name in names]


if __name__ == "__main__":
    main()
