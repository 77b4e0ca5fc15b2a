"""What transformers' own `generate` says and speaks, on the tiny Qwen3-Omni."""

from __future__ import annotations

import base64
import io
import json
import warnings
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FRAMES = 24
RATE = 16000
SPEAKER = "chelsie"


@dataclass(frozen=True)
class Case:
    """One request, in OpenAI's words, and its oracle. `media` are hidden states at `media_at`; `first` are all sampled
    codes of group 0, the last of which has no frame in `codes` `[frames][16]`."""

    messages: list[dict[str, Any]]
    tokens: int
    prompt: list[int]
    said: list[int]
    media_at: list[int]
    media: list[list[float]]
    first: list[int]
    codes: list[list[int]]


def save(cases: Sequence[Case], path: Path) -> Path:
    path.write_text(json.dumps([asdict(case) for case in cases]))
    return path


@contextmanager
def alone() -> Iterator[None]:
    """In one thread: several wait for each other longer than they compute, on so small a model."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Oracle:
    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoProcessor, AutoTokenizer, Qwen3OmniMoeForConditionalGeneration

        self._torch = torch
        self.model: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._processor: Any = AutoProcessor.from_pretrained(folder)

    def run(self, messages: list[dict[str, Any]], tokens: int) -> Case:
        """Greedy in all three: `tokens` text tokens at most, `FRAMES` frames at most."""
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        inputs = self._processor(text=[text], audio=_heard(messages) or None, return_tensors="pt")
        kept: dict[str, Any] = {}
        with self._keeping(kept), alone(), self._torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # transformers' own, about its own arguments
            self.model.generate(
                **inputs,
                speaker=SPEAKER,
                return_audio=True,
                thinker_max_new_tokens=tokens,
                thinker_do_sample=False,
                thinker_eos_token_id=self.model.config.im_end_token_id,
                talker_max_new_tokens=FRAMES + 1,
                talker_do_sample=False,
            )
        return self._case(messages, tokens, inputs["input_ids"][0].tolist(), kept)

    def sound(self, codes: Sequence[Sequence[int]]) -> Any:
        """`[frames][16]` in one pass of Code2Wav, float32 `[samples]` in [-1, 1]."""
        torch = self._torch
        with torch.no_grad():
            return self.model.code2wav(torch.tensor(codes).T[None]).flatten().numpy()

    def _keeping(self, kept: dict[str, Any]) -> Any:
        """Keeps what Thinker and Talker return while `generate` of the whole runs."""
        from contextlib import ExitStack
        from unittest.mock import patch

        stack = ExitStack()
        for name in ("thinker", "talker"):
            part = getattr(self.model, name)

            def kept_of(*args: Any, _name: str = name, _stock: Any = part.generate, **options: Any) -> Any:
                kept[_name] = _stock(*args, **options)
                return kept[_name]

            stack.enter_context(patch.object(part, "generate", kept_of))
        return stack

    def _case(self, messages: list[dict[str, Any]], tokens: int, prompt: list[int], kept: dict[str, Any]) -> Case:
        torch = self._torch
        thinker, talker = kept["thinker"], kept["talker"]
        layer = self.model.config.talker_config.accept_hidden_layer
        hidden = torch.cat([states[layer] for states in thinker.hidden_states], dim=1)[0]
        media_at = [at for at, token in enumerate(prompt) if token == self.model.config.thinker_config.audio_token_id]
        frames = [states[-1] for states in talker.hidden_states if states[-1] is not None]
        return Case(
            messages=messages,
            tokens=tokens,
            prompt=prompt,
            said=thinker.sequences[0, len(prompt) :].tolist(),
            media_at=media_at,
            media=hidden[media_at].tolist(),
            first=talker.sequences[0].tolist(),
            codes=torch.stack(frames, dim=1)[0].tolist(),
        )


def cases(oracle: Oracle) -> list[Case]:
    """Ten prompts, four of them with sound. The second last has a system turn and an earlier answer; the last has one
    word to say, and an end.

    No sound is shorter than the audio encoder's window of one second: it pads those to the longest that it encodes with
    them, so what it hears of them depends on what else is in its batch.
    """

    def user(text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    squares = ", ".join(str(number * number) for number in range(40))
    asked = ("What is the capital of France?", "x", "Name three rivers.", f"Go on: {squares}")
    found = [oracle.run([user(text)], 6 + 5 * at) for at, text in enumerate(asked)]
    for at, text in enumerate(("What is it?", "Who speaks?", "Again.", "And?")):
        found.append(oracle.run([with_sound(text, sound(1.0 + 0.5 * at, 150.0 + 60 * at))], 8 + at))
    talk = [{"role": "system", "content": "Be brief."}, user("A"), {"role": "assistant", "content": "B"}, user("C?")]
    return [*found, oracle.run(talk, 9), oracle.run([user("One word")], 2)]


def with_sound(after: str, wav: str) -> dict[str, Any]:
    """A turn with sound between two texts."""
    given = {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}
    text = [{"type": "text", "text": part} for part in ("Listen: ", after)]
    return {"role": "user", "content": [text[0], given, text[1]]}


def sound(seconds: float, pitch: float, rate: int = RATE) -> str:
    """A WAV of `rate` Hz in base64: a sweep with some noise, the same each time."""
    import numpy as np

    count = int(seconds * rate)
    noise = np.random.default_rng(int(pitch)).standard_normal(count)
    phase = 2 * np.pi * np.cumsum(np.linspace(pitch, pitch * 8, count)) / rate
    wave_ = (0.4 * np.sin(phase) + 0.05 * noise) * 32767
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(wave_.astype("<i2").tobytes())
    return base64.b64encode(held.getvalue()).decode()


def _heard(messages: list[dict[str, Any]]) -> list[Any]:
    """The sounds of all, float32 `[samples]` of -1 to 1 at 16 kHz: as transformers' `load_audio` makes them."""
    import numpy as np
    import soxr

    found = []
    for message in messages:
        parts = message["content"] if isinstance(message["content"], list) else []
        for part in parts:
            if part["type"] == "input_audio":
                with wave.open(io.BytesIO(base64.b64decode(part["input_audio"]["data"]))) as file:
                    rate, pcm = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
                found.append(soxr.resample(pcm.astype("float32") / 32768, rate, RATE, quality="HQ"))
    return found
