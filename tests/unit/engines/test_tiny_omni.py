"""The tiny Qwen3-Omni: one seed makes one model, it knows the roles, and transformers speaks with it, audibly."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from engines.tiny import make_omni
from tests.unit.engines.test_tiny import contents

ROOT = Path(__file__).parents[3]
PROMPTS = ("What is the capital of France?", "Tell me a story.", "x")


@pytest.fixture(scope="module")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    return make_omni(tmp_path_factory.mktemp("models") / "omni")


@pytest.fixture(scope="module")
def tokenizer(omni: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(omni)


@pytest.fixture(scope="module")
def model(omni: Path) -> Any:
    import torch
    from transformers import Qwen3OmniMoeForConditionalGeneration

    return Qwen3OmniMoeForConditionalGeneration.from_pretrained(omni, dtype=torch.float32).eval()


def prompt_ids(tokenizer: Any, content: object) -> Any:
    chat = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, return_tensors="pt").input_ids


def speak(model: Any, ids: Any, **options: Any) -> tuple[list[int], Any]:
    """transformers' own pipeline, greedy: the Thinker's ids, and samples in [-1, 1]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sequences, wave = model.generate(
            input_ids=ids,
            thinker_max_new_tokens=10,
            thinker_do_sample=False,
            thinker_eos_token_id=model.config.im_end_token_id,
            talker_do_sample=False,
            talker_max_new_tokens=20,
            talker_min_new_tokens=8,
            **options,
        )
    return sequences[0, ids.shape[1] :].tolist(), wave.flatten()


def test_a_seed_makes_one_model(omni: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    subprocess.run([sys.executable, "-m", "engines.tiny", "omni", str(out)], cwd=ROOT, check=True, capture_output=True)
    assert contents(out) == contents(omni)
    other = contents(make_omni(tmp_path / "other", 1))
    assert other["model.safetensors"] != contents(omni)["model.safetensors"]


def test_the_configuration_names_the_tokenizers_ids(model: Any, tokenizer: Any) -> None:
    config = model.config
    names = {
        "<|im_start|>": config.im_start_token_id,
        "<|im_end|>": config.im_end_token_id,
        "system": config.system_token_id,
        "user": config.user_token_id,
        "assistant": config.assistant_token_id,
        "<tts_pad>": config.tts_pad_token_id,
        "<tts_text_bos>": config.tts_bos_token_id,
        "<tts_text_eod>": config.tts_eos_token_id,
        "<|audio_pad|>": config.thinker_config.audio_token_id,
        "<|image_pad|>": config.talker_config.image_token_id,
        "<|video_pad|>": config.talker_config.video_token_id,
    }
    assert {text: tokenizer(text).input_ids for text in names} == {text: [id_] for text, id_ in names.items()}
    assert len(tokenizer) == config.thinker_config.text_config.vocab_size


@pytest.mark.parametrize("kind", ["audio", "image", "video"])
def test_the_template_marks_where_media_stand(tokenizer: Any, kind: str) -> None:
    ids = prompt_ids(tokenizer, [{"type": "text", "text": "hear "}, {"type": kind}, {"type": "text", "text": "this"}])
    marks = {"audio": "audio_start audio_pad audio_end"}
    inner = marks.get(kind, f"vision_start {kind}_pad vision_end").split()
    text = tokenizer.decode(ids[0])
    assert "hear " + "".join(f"<|{mark}|>" for mark in inner) + "this<|im_end|>" in text
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith("<|im_start|>assistant\n")


def test_transformers_speaks_audibly_and_differently(model: Any, tokenizer: Any) -> None:
    answers, waves = [], []
    for prompt in PROMPTS:
        answer, wave = speak(model, prompt_ids(tokenizer, prompt))
        frames = (len(wave) + 555) / 1920
        assert frames == int(frames)
        assert 8 <= frames <= 20
        assert bool(wave.isfinite().all())
        assert 0.05 < float(wave.std()) < 0.5
        assert float((wave.abs() == 1).float().mean()) < 0.01, "clipped"
        answers.append(tuple(answer))
        waves.append(wave)
    assert len(set(answers)) == len(PROMPTS)
    assert len({tuple(wave[:1000].tolist()) for wave in waves}) == len(PROMPTS)


def test_each_speaker_has_a_voice(model: Any, tokenizer: Any) -> None:
    ids = prompt_ids(tokenizer, PROMPTS[0])
    spoken = {speaker: speak(model, ids, speaker=speaker) for speaker in ("Ethan", "Chelsie", "Aiden")}
    assert len({tuple(answer) for answer, _ in spoken.values()}) == 1
    assert len({tuple(wave.tolist()) for _, wave in spoken.values()}) == 3


def test_the_thinker_says_no_mark_but_its_end(model: Any, tokenizer: Any) -> None:
    special = set(tokenizer.all_special_ids)
    for prompt in PROMPTS:
        answer, _ = speak(model, prompt_ids(tokenizer, prompt))
        assert special.isdisjoint(set(answer) - {model.config.im_end_token_id})
    assert {tokenizer.convert_tokens_to_ids(mark) for mark in ("<|audio_pad|>", "<|im_end|>")} <= special
