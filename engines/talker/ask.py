"""What `POST /v1/speech` is asked, checked, and as vLLM's sampling parameters.

| field | meaning |
| --- | --- |
| `request_id` | names the request in the engine and its stream of codes; unique for each attempt |
| `conditioning` | references to the Thinker's streams: prefill's and decode's, or an unsplit engine's |
| `speaker` | one of the model's; its first if left out |
| `temperature`, `top_k`, `top_p`, `repetition_penalty` | of group 0: 0.9 (at most 2), 50, 1.0, 1.05 |
| `residual` | `temperature` (at most 10), `top_k`, `top_p` of the groups 1 to 15: 1.0, 50, 0.8 |
| `seed` | 42; the same seed is the same speech |
| `max_frames` | 4095, which is five and a half minutes |

`temperature` 0 is greedy in all groups, unless `residual` has a `temperature` of its own. The defaults are
Qwen3-Omni's, the bounds of group 0 vLLM's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.channel import Reference
from common.errors import BadRequest
from common.strict import json_object
from engines.talker.errors import SpeechUnsupported
from engines.talker.request import GREEDY, Residual, Speech

if TYPE_CHECKING:
    from vllm import SamplingParams

STREAMS = 4
"""Most references of one request."""
MAX_SEED = 2**63 - 1
MAX_TOP_K = 2**31 - 1
"""What is more does not travel to the engine. All codes are taken long before."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ResidualAsk(_Strict):
    """What is left out is of the usual `Residual`, or of the greedy one."""

    temperature: float = Field(1.0, ge=0, le=10)
    top_k: int = Field(50, ge=0, le=MAX_TOP_K)
    top_p: float = Field(0.8, gt=0, le=1)


class Ask(_Strict):
    request_id: str = Field(min_length=1, max_length=200)
    conditioning: tuple[str, ...] = Field(min_length=1, max_length=STREAMS, strict=False)
    speaker: str | None = None
    temperature: float = Field(0.9, ge=0, le=2)
    top_k: int = Field(50, ge=0, le=MAX_TOP_K)
    top_p: float = Field(1.0, gt=0, le=1)
    repetition_penalty: float = Field(1.05, gt=0, le=10)
    residual: ResidualAsk | None = None
    seed: int = Field(42, ge=0, le=MAX_SEED)
    max_frames: int = Field(4095, ge=1)

    @classmethod
    def read(cls, raw: bytes) -> Ask:
        """Raises BadRequest with the field at fault, ChannelError for a reference that is none."""
        try:
            ask = cls.model_validate(json_object(raw.decode()))
        except ValidationError as e:
            first = e.errors(include_url=False, include_context=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            raise BadRequest(f"{field or 'body'}: {first['msg']}, was {first['input']!r:.200}", param=field) from None
        except ValueError:
            raise BadRequest("expected a JSON object") from None
        for text in ask.conditioning:
            Reference.parse(text)
        return ask

    def speech(self, config: Any) -> Speech:
        """`config` is the Talker's. Raises SpeechUnsupported for a speaker that it has not."""
        speakers = config.speaker_id
        speaker = self.speaker or next(iter(speakers))
        if speaker.lower() not in speakers:
            raise SpeechUnsupported(
                f"speaker is {speaker!r}: expected one of {', '.join(sorted(speakers))}", param="speaker"
            )
        usual = Residual() if self.temperature else GREEDY
        told = self.residual.model_dump(exclude_unset=True) if self.residual else {}
        return Speech(self.conditioning, speaker.lower(), self.request_id, replace(usual, **told))

    def sampling(self, config: Any, room: int) -> SamplingParams:
        """`room` is how many tokens the engine has behind the prompt. The last sampled id has no frame.

        Raises BadRequest for what vLLM will not have, with the field if it names it, and what `speech` raises."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        extra = self.speech(config).extra_args(self.seed)
        try:
            return SamplingParams(
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                repetition_penalty=self.repetition_penalty,
                seed=self.seed,
                max_tokens=max(min(self.max_frames + 1, room), 1),
                stop_token_ids=[config.codec_eos_token_id],
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
                extra_args=extra,
            )
        except (VLLMClientError, ValueError) as e:
            field = getattr(e, "parameter", None)
            raise BadRequest(str(e), param=field if field in type(self).model_fields else None) from None
