"""The witness as vLLM sees it: a Qwen3 whose input rows come from the hooks of the phase contract.

Told by `--additional-config '{"witness": {"record": "/file", "batched": true}}'`; both may be left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN
from engines.runner import require_phase_contract
from engines.witness.record import Frame, Recorder, Row
from engines.witness.talker import Talker

Info = dict[str, Any]
"""What the runner keeps for a request and passes to its hooks; of the witness's own it has

- `theme`, int64 `[1]`: the prompt's last id, which chooses the text; known from the row that holds it, which every
  engine computes itself, also after a prefix cache hit or a load from another engine;
- `step`: decode rows so far, never taken from the keys: advanced twice or too early, it speaks the wrong text;
- `hidden_states.last`, `[1, hidden]`: the hidden state after the newest row.
"""


class WitnessForCausalLM(Qwen3ForCausalLM):
    has_preprocess: ClassVar[bool] = True
    has_postprocess: ClassVar[bool] = True
    rows_follow_from_ids: ClassVar[bool] = True
    talker_mtp_accepts_req_infos: ClassVar[bool] = True
    gpu_resident_buffer_keys: ClassVar[frozenset[tuple[str, str]]] = frozenset({("hidden_states", "last")})

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        require_phase_contract(vllm_config)
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_text_config
        self.talker = Talker(config.vocab_size, config.hidden_size)
        told = dict((vllm_config.additional_config or {}).get("witness", {}))
        self._recorder = Recorder(Path(told["record"]) if "record" in told else None)
        if told.get("batched", False):
            self.preprocess_decode_batch = self._decode_batch

    @torch.inference_mode()
    def preprocess(
        self, input_ids: Tensor, input_embeds: Tensor | None = None, **info: Any
    ) -> tuple[Tensor, Tensor, Info]:
        """`input_ids` `[span]`; returns them, their rows `[span, hidden]`, and what is to be kept."""
        self._note("scalar", input_ids.shape[0], info)
        if info[IS_PREFILL]:
            return self._prompt(input_ids, info)
        rows = self.talker.codec_rows(input_ids)
        if input_ids.shape[0] > 1:
            return input_ids, rows, {}
        hidden, text, updates = self._speak(info)
        return input_ids, rows, {**updates, "mtp_inputs": (hidden, text)}

    @torch.inference_mode()
    def _decode_batch(
        self, *, input_ids: Tensor, req_infos: list[Info]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Info]]:
        """`input_ids` `[n]`, one decode row a request. Is `preprocess_decode_batch` where that was asked for."""
        for info in req_infos:
            self._note("batched", 1, info)
        hidden, text, updates = zip(*(self._speak(info) for info in req_infos), strict=True)
        return input_ids, self.talker.codec_rows(input_ids), torch.cat(hidden), torch.cat(text), list(updates)

    @torch.inference_mode()
    def talker_mtp(
        self,
        input_ids: Tensor,
        embeds: Tensor,
        last_hidden: Tensor,
        text_step: Tensor,
        *,
        req_ids: list[str],
        req_infos: list[Info],
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """`input_ids` `[n]`, the others `[n, hidden]`; returns rows `[n, hidden]` and frames `[n, 16]`. The further
        arguments are for MTPs that sample; this one is greedy."""
        fed, frames = self.talker.predict(input_ids, embeds, last_hidden, text_step)
        if self._recorder.on:
            for request, info, codes in zip(req_ids, req_infos, frames.tolist(), strict=False):
                self._recorder.add(Frame(request, info["step"] - 1, tuple(codes)))
        return fed, frames

    def postprocess(self, hidden: Tensor, multimodal_outputs: Any = None, **_: Any) -> Info:
        """`hidden` `[span, hidden]`, after the last norm."""
        return {"hidden_states": {"last": hidden[-1:]}}

    def _prompt(self, ids: Tensor, info: Info) -> tuple[Tensor, Tensor, Info]:
        done = info[NUM_COMPUTED]
        rows = self.talker.prompt_rows(ids, done)
        whole = done + ids.shape[0] == info[PROMPT_LEN]
        return ids, rows, {"theme": ids[-1:].long().clone(), "step": info.get("step", 0)} if whole else {}

    def _speak(self, info: Info) -> tuple[Tensor, Tensor, Info]:
        """One decode step of a request: its last hidden state, the text row of this step, and the step after it."""
        hidden = info["hidden_states"]["last"]
        text = self.talker.text_rows(info["theme"].to(hidden.device) * 31 + info["step"])
        return hidden, text, {"step": info["step"] + 1}

    def _note(self, hook: Literal["scalar", "batched"], span: int, info: Info) -> None:
        if self._recorder.on:
            told = info[PROMPT_LEN], info[NUM_COMPUTED], info[IS_PREFILL]
            self._recorder.add(Row(hook, info["request_id"], *told, span, info.get("step", 0)))
