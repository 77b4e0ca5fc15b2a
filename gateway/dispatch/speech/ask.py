"""What a client asks for with `audio`, checked.

| field | meaning |
| --- | --- |
| `voice` | one of the Talkers' speakers, or `{"id": …}` of one; upper and lower case alike |
| `format` | wav, mp3, flac, opus, aac, pcm16; of a stream, pcm16 |
| `sampling` | ours: `temperature`, `top_k`, `top_p`, `repetition_penalty`, `seed`, `max_frames`, `residual` |

What `sampling` leaves out is as the Talker has it; without a seed of its own the speech has the request's. `residual`
has the first three for the codes' groups 1 to 15. Temperature 0 is greedy in all groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from common.errors import BadRequest
from gateway.audio import Format, format_of
from gateway.dispatch.speech.errors import AudioUnsupported
from gateway.wire import ClientRequest
from gateway.wire.parts import SIGHTS

MAX_SEED = 2**63 - 1
MAX_FRAMES = 4095
"""Five and a half minutes."""

_Temperature = Annotated[float, Meta(ge=0, le=2)]
"""Of group 0, as vLLM samples it."""
_TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_TopP = Annotated[float, Meta(gt=0, le=1)]


class _Residual(msgspec.Struct, forbid_unknown_fields=True):
    temperature: Annotated[float, Meta(ge=0, le=10)] | UnsetType = UNSET
    top_k: _TopK | UnsetType = UNSET
    top_p: _TopP | UnsetType = UNSET


class _Sampling(msgspec.Struct, forbid_unknown_fields=True):
    temperature: _Temperature | UnsetType = UNSET
    top_k: _TopK | UnsetType = UNSET
    top_p: _TopP | UnsetType = UNSET
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | UnsetType = UNSET
    residual: _Residual | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=MAX_SEED)] | UnsetType = UNSET
    max_frames: Annotated[int, Meta(ge=1, le=MAX_FRAMES)] | UnsetType = UNSET


class _Voice(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class _Audio(msgspec.Struct, forbid_unknown_fields=True):
    voice: str | _Voice
    format: str
    sampling: _Sampling | None = None


_decode = msgspec.json.Decoder(_Audio).decode
_AT = " - at `$"
"""What stands before the path in the decoder's words, and behind whatever a client wrote that they repeat."""
_SHOWN = 80
"""Characters of the decoder's words, which repeat a field that nobody knows."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`sampling` are fields of the Talker's request, as JSON values; none that is as the Talker has it anyway."""

    speaker: str
    format: Format
    sampling: Mapping[str, Any]

    @classmethod
    def of(cls, request: ClientRequest, speakers: Sequence[str]) -> Ask:
        """Raises BadRequest with the field at fault."""
        audio = _read(request)
        speaker = _speaker(audio.voice if isinstance(audio.voice, str) else audio.voice.id, speakers)
        kind = format_of(audio.format, "audio.format")
        if request.stream and kind is not Format.PCM16:
            raise BadRequest(f"audio.format is {kind.value!r}; expected pcm16 of a stream", param="audio.format")
        _expect_one_answer(request)
        _expect_what_is_read(request)
        sampling = msgspec.to_builtins(audio.sampling) if audio.sampling is not None else {}
        seed = request.integer("seed")
        if seed is not None:
            sampling.setdefault("seed", seed & MAX_SEED)
        return cls(speaker, kind, sampling)


def _read(request: ClientRequest) -> _Audio:
    try:
        return _decode(request.fields["audio"])
    except (msgspec.DecodeError, RecursionError) as e:
        said = str(e)
        words, at, path = said.rpartition(_AT)
        if not at:
            words, path = said, ""
        names = [name for name in path.removesuffix("`").split(".") if name]
        param = ".".join(("audio", *names))
        raise BadRequest(f"{param} is {_seen(request, names):.{_SHOWN}}: {words:.{_SHOWN}}", param=param) from None


def _seen(request: ClientRequest, names: Sequence[str]) -> str:
    """What stands there in the client's own words, compact JSON; all of `audio` where that is no JSON."""
    text = bytes(request.fields["audio"])
    try:
        found = msgspec.json.decode(text)
        for name in names:
            found = found[name]
        return msgspec.json.encode(found).decode()
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return text.decode("utf-8", "replace")


def _speaker(voice: str, speakers: Sequence[str]) -> str:
    for speaker in speakers:
        if speaker.lower() == voice.lower():
            return speaker
    known = ", ".join(speakers)
    raise BadRequest(f"audio.voice is {voice!r:.80}; expected one of {known}", param="audio.voice")


def _expect_one_answer(request: ClientRequest) -> None:
    """Several answers to one request would be told to the Talker as one."""
    if (request.integer("n") or 1) > 1:
        raise AudioUnsupported(f"n is {request.integer('n')}; expected 1 with modalities text and audio", param="n")
    if request.has("use_beam_search"):
        name = "use_beam_search"
        raise AudioUnsupported(f"{name} is set; expected none with modalities text and audio", param=name)


def _expect_what_is_read(request: ClientRequest) -> None:
    """What a Talker cannot read is said before anything is computed."""
    if sights := request.media & SIGHTS:
        raise AudioUnsupported(
            f"messages has {', '.join(sorted(sights))}; expected text and sound only with modalities text and audio",
            param="messages",
        )
    if request.given("stop") and msgspec.json.decode(request.fields["stop"]) != []:
        raise AudioUnsupported(  # it is found in the text, once tokens behind it have been made, and told to the Talker
            "stop is given; expected none with modalities text and audio: stop_token_ids end an answer where it is "
            "spoken",
            param="stop",
        )
    name = "add_generation_prompt"
    if request.given(name) and not request.has(name):
        raise AudioUnsupported(f"{name} is false; expected true with modalities text and audio", param=name)
