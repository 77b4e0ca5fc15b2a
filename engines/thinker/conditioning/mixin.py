"""Conditioning on top of a V1 runner.

| what vLLM calls | what is added |
| --- | --- |
| `load_model` | the layers to listen to are found, what cannot work is refused |
| `_preprocess` | requests that are told of are noted, and what is new in their rows |
| `_model_forward` | it is published |
| `_on_request_state_removed` | the request's stream ends |
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from torch import Tensor

from common.channel import ChannelFull, StreamClosed
from common.channel.reference import Key
from common.conditioning import EMBEDDING, HIDDEN, MEDIA, STAGE, frame_rows
from common.errors import ConfigurationError
from engines.channel import leads, publisher, to_rows
from engines.runner.errors import RuntimeUnsupported
from engines.thinker.conditioning.listen import Listener
from engines.thinker.conditioning.telling import ARGUMENT, News, Telling

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as _Stock
else:
    _Stock = object

MODE = "DUET_CONDITIONING"
"""`media`: what Qwen3-Omni's Talker reads. `all`: every position, for models that read more."""


class ConditioningMixin(_Stock):
    """Stands before our phase-aware runner in the bases."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        self.listen()

    def listen(self) -> None:
        """Raises RuntimeUnsupported, ConfigurationError."""
        mode = os.environ.get(MODE, "media")
        if mode not in ("media", "all"):
            raise ConfigurationError(f"{MODE} is {mode!r}: expected media or all")
        config = self.vllm_config.model_config.hf_config
        try:
            thinker, layer = config.thinker_config, int(config.talker_config.accept_hidden_layer)
        except AttributeError as e:
            raise RuntimeUnsupported(
                f"model {type(self.get_model()).__name__} has no Talker ({e}): start it without conditioning"
            ) from None
        self._layer = layer
        self._every = mode == "all"
        self._media_ids = frozenset({thinker.audio_token_id, thinker.image_token_id, thinker.video_token_id})
        self._listener = Listener(self, (0, layer) if self._every else (layer,))
        self._told: dict[str, Telling] = {}
        self._news: list[tuple[str, News, int]] = []
        self._leads = leads()
        if self._leads:
            publisher()  # an endpoint that is taken ends the engine now, not its first request

    def _preprocess(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        result = super()._preprocess(scheduler_output, *args, **kwargs)
        self._news = []
        for new in scheduler_output.scheduled_new_reqs:
            self._note(new.req_id)
        if self._told:
            self._look(scheduler_output.num_scheduled_tokens)
        self._listener.want(any(news.media_at or self._every for _, news, _ in self._news))
        return result

    def _note(self, request: str) -> None:
        state = self.requests[request]
        extra = state.sampling_params.extra_args if state.sampling_params is not None else None
        key = (extra or {}).get(ARGUMENT)
        if self._leads and key is not None and state.prompt_token_ids is not None and request not in self._told:
            self._told[request] = Telling.of(str(key), state.prompt_token_ids, self._media_ids)

    def _look(self, spans: dict[str, int]) -> None:
        batch = self.input_batch
        for at, request in enumerate(batch.req_ids):
            telling = self._told.get(request)
            if telling is None:
                continue
            computed = int(batch.num_computed_tokens_cpu[at])
            if news := telling.look(computed, spans[request]):
                self._news.append((request, news, int(self.query_start_loc.np[at]) - computed))

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        output, heard = self._listener.split(super()._model_forward(*args, **kwargs))
        news, self._news = self._news, []
        for request, one, offset in news:
            self._publish(request, one, offset, heard)
        return output

    def _publish(self, request: str, news: News, offset: int, heard: dict[int, Tensor]) -> None:
        """`offset` plus a position is its place in the step's flat buffers.

        A stream that is full or has been released takes nothing: its consumers are told, the text goes on.
        """
        telling, state = self._told[request], self.requests[request]
        ids = [state.get_token_id(at) for at in range(news.begin, news.end)]
        rows = {}
        if news.media_at:
            places = [offset + at for at in news.media_at]
            rows[MEDIA] = to_rows(heard[self._layer][places])
        if self._every:
            part = slice(offset + news.computed, offset + news.end)
            rows |= {EMBEDDING: to_rows(heard[0][part]), HIDDEN: to_rows(heard[self._layer][part])}
        with contextlib.suppress(StreamClosed, ChannelFull):
            told = frame_rows(telling.prompt_len, news.begin, ids, news.media_at, **rows)
            publisher().publish(Key(telling.key, STAGE), told)
        telling.told = news.end

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        super()._on_request_state_removed(req_id, req_state)
        if telling := self._told.pop(req_id, None):
            publisher().close(Key(telling.key, STAGE))
