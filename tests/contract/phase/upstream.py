"""vLLM-Omni's own runner, as a program: it prints what its models are told in each case, as JSON.

A process of its own, because vLLM-Omni changes vLLM when it is imported. Where it cannot be imported here, or not with
this vLLM, the reason is all that is printed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import torch

from tests.contract.phase.cases import CASES, told
from tests.unit.runner.stage import Buffer, FakeRunner, Stage
from tests.unit.runner.talker import HIDDEN, Talker

ROOM = 64


def stage_of(upstream: Any, model: Talker) -> Stage:
    """A stage whose runner is vLLM-Omni's, with the state that its `_preprocess` reads."""
    stage = Stage(FakeRunner, model)
    runner = object.__new__(upstream.OmniGPUModelRunner)
    vars(runner).update(vars(stage.runner))
    runner.vllm_config.model_config.async_chunk = True
    runner.has_talker_mtp = True
    runner.talker_mtp = lambda *rows, **_: model.talker_mtp(*rows)
    runner.talker_mtp_input_ids = Buffer(torch.zeros(ROOM, dtype=torch.int32))
    for name in ("talker_mtp_inputs_embeds", "last_talker_hidden", "text_step"):
        setattr(runner, name, Buffer(torch.zeros(ROOM, HIDDEN)))
    runner._determine_batch_execution_and_padding = lambda **k: (None, SimpleNamespace(**k), None, None, None)
    stage.runner = runner
    return stage


def main() -> None:
    warnings.simplefilter("ignore")
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import vllm_omni.worker.gpu_model_runner as upstream
        except ImportError as e:
            json.dump({"missing": str(e)}, out)
            return
        upstream.get_pp_group = lambda: SimpleNamespace(is_first_rank=True)
        upstream.current_omni_platform.set_forward_context = lambda *_, **__: contextlib.nullcontext()
        with torch.inference_mode():
            found = [[told(stage_of(upstream, Talker(batched=b)), case) for case in CASES] for b in (False, True)]
    json.dump({"told": found}, out)


if __name__ == "__main__":
    main()
