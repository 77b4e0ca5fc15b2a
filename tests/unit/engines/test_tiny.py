"""The tiny model: the same each time, able to hold a whole chat, and not saying one word for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engines.tiny import make_text

ROOT = Path(__file__).parents[3]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    return make_text(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


def test_a_seed_makes_one_model(tiny: Path, tmp_path: Path) -> None:
    assert contents(make_text(tmp_path / "again", 0)) == contents(tiny)
    other = contents(make_text(tmp_path / "other", 1))
    assert other["model.safetensors"] != contents(tiny)["model.safetensors"]
    assert other["tokenizer.json"] != contents(tiny)["tokenizer.json"]


def test_the_callers_random_numbers_are_left_alone(tiny: Path, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    make_text(tmp_path / "again")
    assert torch.equal(torch.rand(4), expected)


def test_the_command_makes_the_same_in_another_process_and_only_once(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    command = [sys.executable, "-m", "engines.tiny", str(out)]
    for _ in range(2):
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert said.splitlines()[-1] == str(out)
        assert contents(out) == contents(tiny)
        made = out.stat().st_mtime_ns
    assert out.stat().st_mtime_ns == made


@pytest.mark.parametrize("text", ["The capital of France is Paris.", "naïve 東京 🎉\n\ttabs", "{}[]\\\"'", ""])
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_the_vocabulary_is_whole(tokenizer: Any) -> None:
    assert len(tokenizer) == 1024
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]
    assert tokenizer.eos_token == "<|im_end|>"


def test_all_that_a_chat_has_is_in_the_prompt(tokenizer: Any) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "How is "}, {"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    prompt = tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
    heads = [part.split("\n", 1)[0] for part in prompt.split("<|im_start|>")[1:]]
    assert heads == ["system", "system", "user", "assistant", "tool", "assistant"]
    for said in ('"name": "weather", "parameters"', "Be brief.", "How is Oslo?", '"city": "Oslo"', "rain"):
        assert said in prompt
    assert prompt.endswith("<|im_start|>assistant\n")


def test_greedy_answers_wander(tiny: Path, tokenizer: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny).eval()
    assert model.dtype == torch.float32
    answers = []
    for prompt in ("What is the capital of France?", "Tell me a story.", "x"):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            for _ in range(24):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        answers.append(tuple(ids[0, -24:].tolist()))
    assert len(set(answers)) == 3
    assert all(len(set(answer)) >= 12 for answer in answers)
