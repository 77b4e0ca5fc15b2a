"""The Talker as vLLM sees it: vLLM's own mixture-of-experts body, fed by the hooks of the phase contract.

Its prompt holds nothing but placeholders, `codec_pad_id`, which the repetition penalty may count without harm: that id
is never sampled. What the rows are is decided by the phase that the runner tells, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.interfaces import SupportsMRoPE
from vllm.model_executor.models.qwen3_moe import Qwen3MoeModel
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper, maybe_prefix

from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN
from engines.runner import require_phase_contract
from engines.talker.config import marks_of
from engines.talker.errors import TextMissing
from engines.talker.feed import Feed, Silence
from engines.talker.inbox import inbox
from engines.talker.outbox import Outbox
from engines.talker.predictor import CodePredictor
from engines.talker.reading import Reader
from engines.talker.request import Speech
from engines.talker.sampling import Chooser

Info = dict[str, Any]
UNSAID = 1024
"""The last so many ids are marks; of them only the end token may be sampled. transformers suppresses the same."""
TOLD_WITHIN = 30.0
"""Seconds that a worker waits for rows which the scheduler has seen: only one in another process ever does."""


@dataclass(slots=True)
class _Said:
    """One request that is being spoken. `rows` `[prompt, hidden]` are made with its first row, and kept: after a
    preemption they are read again."""

    speech: Speech
    feed: Feed
    rows: Tensor


class TalkerForConditionalGeneration(nn.Module, SupportsMRoPE):
    has_preprocess: ClassVar[bool] = True
    has_postprocess: ClassVar[bool] = True
    requires_phase_contract: ClassVar[bool] = True
    talker_mtp_accepts_req_infos: ClassVar[bool] = True
    talker_mtp_accepts_per_row_generators: ClassVar[bool] = True
    gpu_resident_buffer_keys: ClassVar[frozenset[tuple[str, str]]] = frozenset({("hidden_states", "last")})
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={
            "talker.model.codec_embedding.": "model.embed_tokens.",
            "talker.codec_head.": "lm_head.",
            "talker.text_projection.": "reader.text_projection.",
            "talker.hidden_projection.": "reader.hidden_projection.",
            "thinker.model.embed_tokens.": "reader.text_embedding.",
            "talker.": "",
        }
    )

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        require_phase_contract(vllm_config)
        super().__init__()
        self.config = config = vllm_config.model_config.hf_config
        text = config.text_config
        self.model = Qwen3MoeModel(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.lm_head = ParallelLMHead(text.vocab_size, text.hidden_size, prefix=maybe_prefix(prefix, "lm_head"))
        self.logits_processor = LogitsProcessor(text.vocab_size)
        self.reader = Reader(config)
        self.code_predictor = CodePredictor(config.code_predictor_config)
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors
        unsaid = torch.zeros(text.vocab_size, dtype=torch.bool)
        unsaid[-UNSAID:] = True
        unsaid[config.codec_eos_token_id] = False
        self.register_buffer("_unsaid", unsaid, persistent=False)
        self._said: dict[str, _Said] = {}
        self._outbox = Outbox.of_worker()

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **_: Any,
    ) -> Any:
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        logits = self.logits_processor(self.lm_head, hidden_states)
        return None if logits is None else logits.masked_fill(self._unsaid, -torch.inf)

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[Tensor, int]:
        """Text and sound: the same position on all three axes."""
        count = len(input_tokens)
        return torch.arange(count)[None].expand(3, count).contiguous(), 0

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        return AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)

    @torch.inference_mode()
    def preprocess(
        self, input_ids: Tensor, input_embeds: Tensor | None = None, **info: Any
    ) -> tuple[Tensor, Tensor, Info]:
        """A row of the prompt, or one decode step: ids `[span]` -> ids, rows `[span, hidden]`, updates.

        Raises TextMissing, ValueError for a request that does not come from our endpoint.
        """
        said = self._open(info)
        if info[IS_PREFILL]:
            begin = info[NUM_COMPUTED]
            if said.rows.shape[0] != info[PROMPT_LEN]:
                raise ValueError(f"a prompt of {info[PROMPT_LEN]} tokens: expected {said.rows.shape[0]}, as was told")
            return input_ids, said.rows[begin : begin + input_ids.shape[0]], {}
        text = self.reader.text([self._text(info)])
        updates = {"mtp_inputs": (info["hidden_states"]["last"], text)}
        return input_ids, self.model.embed_tokens(input_ids), updates

    @torch.inference_mode()
    def preprocess_decode_batch(
        self, *, input_ids: Tensor, req_infos: list[Info]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Info]]:
        """One decode step of each of n requests; as `preprocess`, with one call of each layer for all of them."""
        texts = [self._text(info) for info in req_infos]
        hidden = torch.cat([info["hidden_states"]["last"] for info in req_infos])
        return input_ids, self.model.embed_tokens(input_ids), hidden, self.reader.text(texts), [{} for _ in req_infos]

    @torch.inference_mode()
    def talker_mtp(
        self,
        input_ids: Tensor,
        embeds: Tensor,
        last_hidden: Tensor,
        text_step: Tensor,
        *,
        req_ids: Sequence[str],
        req_infos: Sequence[Info],
        generator: torch.Generator | None = None,
        generators: Sequence[torch.Generator | None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A frame a row: group 0 is `input_ids` `[n]`, the others are predicted. Returns the rows to feed `[n, hidden]`
        and the codes `[n, groups]`, which are published as they are made."""
        said = [self._said[request] for request in req_ids]
        seeds = generators or [generator] * len(said)
        choose = Chooser([one.speech.residual for one in said], seeds, last_hidden.device)
        residual, total = self.code_predictor(last_hidden, embeds, choose)
        codes = torch.cat((input_ids[:, None].long(), residual), dim=1)
        self._outbox.publish([one.speech.codes for one in said], codes)
        return total + text_step, codes

    def postprocess(self, hidden: Tensor, multimodal_outputs: Any = None, **_: Any) -> Info:
        """`hidden` `[span, hidden]`, after the last norm."""
        return {"hidden_states": {"last": hidden[-1:]}}

    def on_requests_finished(self, req_ids: Sequence[str]) -> None:
        for request in req_ids:
            if said := self._said.pop(request, None):
                inbox().close(said.speech.conditioning)

    def end_codes(self, request: str, error: str | None) -> None:
        """The endpoint's word on how a stream of codes ends; see `worker.py`."""
        self._outbox.end(request, error)

    def _text(self, info: Info) -> int | Silence:
        """What a decode step reads. Raises TextMissing."""
        step = info[NUM_COMPUTED] - info[PROMPT_LEN]
        return self._open(info).feed.text_within(step, inbox().wait, TOLD_WITHIN)

    def _open(self, info: Info) -> _Said:
        """The request's own, made with its first row. Raises TextMissing if its prompt does not come."""
        request = info["request_id"]
        if found := self._said.get(request):
            return found
        speech = Speech.of(info["sampling_extra_args"])
        feed = Feed(inbox().open(speech.conditioning), marks_of(self.config))
        if not inbox().wait(feed.can_start, TOLD_WITHIN):
            raise TextMissing(f"request {request}: no whole prompt from the Thinker within {TOLD_WITHIN:g} s")
        script = feed.script
        assert script is not None
        marks = torch.tensor(self.reader.marks(speech.speaker), device=self.reader.device)
        rows = self.reader.prompt(script, feed.conditioning, self.model.embed_tokens(marks))
        said = self._said[request] = _Said(speech, feed, rows)
        return said
