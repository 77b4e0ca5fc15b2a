"""A Talker with real weights, told a text by the test itself, and what its runner wrote down.

The Thinker is not needed: for a text prompt the Talker reads ids alone, and the embedding table stands at the Talker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from common.channel import Publisher
from common.channel.reference import Key
from common.conditioning import STAGE, frame_rows
from common.engine import Role
from common.process import Child
from tests.e2e.features.listening import VARIABLE as HEARD
from tests.e2e.features.listening import WORKERS
from tests.ports import own_ports
from tests.sse import events_of

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

ASKED = "Please read this to me: the quick brown fox jumps over the lazy dog."
SAID = "The quick brown fox jumps over the lazy dog, and the dog does not mind."
FRAMES = 60
"""Most frames of an answer: 4.8 s of sound."""
READY_WITHIN = 1500.0
"""Seconds: weights are read, and on a GPU graphs captured."""


@dataclass(frozen=True)
class Text:
    """A Thinker's prompt, and what it answered without the end token, as ids."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]


@dataclass(frozen=True)
class Speech:
    """`rows` and `codes` are the runner's journal (`engines/runner/journal.py`): what was scheduled, what was said.
    `heard` is what the model's hooks were told (`listening.py`)."""

    prompt_tokens: int
    rows: Sequence[dict[str, Any]]
    codes: Sequence[Sequence[int]]
    heard: Sequence[dict[str, Any]]

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        return [(row["prompt_len"], row["computed"], row["span"]) for row in self.rows]


def text_of(weights: Path) -> Text:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights)
    asked = [{"role": "user", "content": ASKED}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    return Text(tuple(tokenizer(prompt).input_ids), tuple(tokenizer(SAID).input_ids))


def speak(talker: Path, text: Text, folder: Path, *flags: str, device: str) -> Speech:
    """Starts an engine with `flags` for this one speech, greedy, and stops it."""
    from engines.talker.launch import command, environment
    from engines.thinker import EngineSpec
    from engines.thinker.ready import Readiness

    folder.mkdir()
    journal, heard = folder / "journal", folder / "heard"
    (port,) = own_ports(1)
    spec = EngineSpec(
        model=str(talker),
        role=Role.BOTH,
        port=port,
        served_name="talker",
        device=device,
        max_model_len=2048,
        channel=f"ipc://{folder}/codes",
        extra=("--worker-cls", WORKERS[device], *flags),
    )
    env = environment(spec, device=device)
    invariant = {"VLLM_BATCH_INVARIANT": "1"} if device == "cuda" else {}
    with ExitStack() as stack:
        env = {**os.environ, **env, **invariant, "DUET_PHASE_LOG": str(journal), HEARD: str(heard)}
        child = stack.enter_context(Child("talker", command(spec, device=device), log=folder / "talker.log", env=env))
        thinker = stack.enter_context(Publisher())
        url = f"http://127.0.0.1:{port}"
        Readiness(child, url, within=READY_WITHIN).wait()
        events = _ask(url, _tell(thinker, text))
    assert [event["type"] for event in events[:1] + events[-1:]] == ["started", "done"], events
    rows, told = _lines(journal), _lines(heard)
    return Speech(
        prompt_tokens=events[0]["prompt_tokens"],
        rows=[event for event in rows if event["event"] == "row"],
        codes=[event["codes"] for event in rows if event["event"] == "codes"],
        heard=told,
    )


def _tell(thinker: Publisher, text: Text) -> str:
    """All at once, as of a Thinker that has ended. Returns the reference to it."""
    key = Key("speech", STAGE)
    thinker.publish(key, frame_rows(len(text.prompt), 0, text.prompt + text.said))
    thinker.close(key)
    return str(thinker.reference(key))


def _ask(url: str, conditioning: str) -> list[dict[str, Any]]:
    body = {"request_id": "speech", "conditioning": [conditioning], "temperature": 0, "max_frames": FRAMES}
    reply = httpx.post(f"{url}/v1/speech", json=body, timeout=600)
    assert reply.status_code == 200, reply.text
    return events_of(reply.text)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sound(weights: Path, codes: Sequence[Sequence[int]], device: str) -> NDArray[float32]:
    """`[samples]`, 24 kHz: all of Code2Wav in one pass."""
    import numpy as np

    from engines.code2wav.vocoder import Vocoder

    (wave,) = Vocoder.load(weights, device=device).decode([np.asarray(codes, dtype=np.int64)])
    return wave
