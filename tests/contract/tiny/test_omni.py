"""vLLM and transformers read the tiny Qwen3-Omni alike: its Thinker says the same to text and to sound in both."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from common.engine import Role
from engines.tiny import make_omni
from tests.contract.talker.oracle import alone
from tests.real_engines import launch, spec_of, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

LONG = "Tell me of the sea, and count its waves: " + ", ".join(str(number * number) for number in range(60))
PROMPTS = ("What is the capital of France?", LONG, "x")
TOKENS = 12
RATE = 16_000
ONLY_AUDIO = ("--limit-mm-per-prompt", '{"image": 0, "video": 0, "audio": 1}')


@pytest.fixture(scope="module")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    return make_omni(tmp_path_factory.mktemp("model") / "omni")


@pytest.fixture(scope="module")
def url(omni: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    spec = replace(spec_of(omni, Role.BOTH, None), extra=ONLY_AUDIO)
    with ExitStack() as stack:
        engine = launch(stack, spec, tmp_path_factory.mktemp("engine") / "omni.log")
        wait_for(engine)
        yield engine.url


@pytest.fixture(scope="module")
def thinker(omni: Path) -> Any:
    import torch
    from transformers import Qwen3OmniMoeForConditionalGeneration

    return Qwen3OmniMoeForConditionalGeneration.from_pretrained(omni, dtype=torch.float32).eval().thinker


def asked(url: str, content: object) -> tuple[list[int], list[int]]:
    """vLLM's prompt and answer, in ids."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}]}
    body |= {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).raise_for_status().json()
    return reply["prompt_token_ids"], reply["choices"][0]["token_ids"]


def greedy(thinker: Any, prompt: list[int], **media: Any) -> list[int]:
    """What transformers says, without a cache between tokens."""
    import torch

    ids = torch.tensor([prompt])
    with alone(), torch.no_grad():
        for _ in range(TOKENS):
            logits = thinker(input_ids=ids, attention_mask=torch.ones_like(ids), **media).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, -TOKENS:].tolist()


def sound(seconds: float, pitch: float) -> Any:
    """A rising tone in noise, s16 at 16 kHz."""
    at = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(0).normal(0, 0.05, len(at))
    return ((0.4 * np.sin(2 * np.pi * (pitch + 300 * at) * at) + noise).clip(-1, 1) * 32767).astype("<i2")


def wav(samples: Any) -> str:
    """Base64."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize("prompt", PROMPTS, ids=["short", "long", "one"])
def test_greedy_tokens_are_transformers_own(url: str, thinker: Any, prompt: str) -> None:
    ids, said = asked(url, prompt)
    expected = greedy(thinker, ids)
    assert len(set(expected)) > 3
    assert said == expected


@pytest.mark.parametrize(("seconds", "pitch"), [(0.3, 300.0), (1.5, 200.0), (4.7, 800.0)])
def test_sound_is_heard_as_transformers_hears_it(
    url: str, omni: Path, thinker: Any, seconds: float, pitch: float
) -> None:
    from transformers import AutoProcessor

    samples = sound(seconds, pitch)
    media = {"type": "input_audio", "input_audio": {"data": wav(samples), "format": "wav"}}
    ids, said = asked(url, [{"type": "text", "text": "Hear: "}, media, {"type": "text", "text": " What is it?"}])
    processor = AutoProcessor.from_pretrained(omni)
    text = "<|im_start|>user\nHear: <|audio_start|><|audio_pad|><|audio_end|> What is it?<|im_end|>\n"
    heard = processor(
        text=text + "<|im_start|>assistant\n",
        audio=[samples.astype(np.float32) / 32768],
        sampling_rate=RATE,
        return_tensors="pt",
    )
    assert ids == heard.pop("input_ids")[0].tolist()
    heard.pop("attention_mask")
    expected = greedy(thinker, ids, **heard)
    assert said == expected
    assert expected != greedy(thinker, ids, **{**heard, "input_features": heard["input_features"] * 0}), "not heard"
