"""The phase contract with real weights: a Talker whose prompt ends in a row of one token says what it says uncut.

`DUET_TEST_OMNI_WEIGHTS` names the folder of a Qwen3-Omni checkpoint (its Talker and Code2Wav are read, 8 GB or so).
Kernels are batch-invariant, so that not even the last digit of a sum hangs on where the prompt is cut: with others
greedy answers differ for that alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.features.speaking import sound, speak, text_of

WEIGHTS = "DUET_TEST_OMNI_WEIGHTS"

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]


@pytest.fixture
def weights() -> Path:
    torch = pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=gpu")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: torch sees none")
    named = os.environ.get(WEIGHTS)
    if not named:
        pytest.skip(f"no weights: {WEIGHTS} names no folder with a Qwen3-Omni checkpoint")
    folder = Path(named)
    assert (folder / "config.json").is_file(), f"{WEIGHTS} is {named}: expected a folder with config.json"
    return folder


@pytest.mark.gpu
def test_a_prompt_cut_before_its_last_token_sounds_the_same(weights: Path, tmp_path: Path) -> None:
    check_cut_equals_whole(weights, tmp_path, device="cuda")


def test_the_same_check_with_tiny_weights_on_cpus(tmp_path: Path) -> None:
    """What the test above does where it cannot run, so that it works where it can."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    from engines.tiny import make_omni

    check_cut_equals_whole(make_omni(tmp_path / "omni"), tmp_path, device="cpu")


def check_cut_equals_whole(weights: Path, folder: Path, *, device: str) -> None:
    from numpy import isfinite

    from engines.talker import make_talker

    talker, text = make_talker(weights, folder / "talker"), text_of(weights)
    whole = speak(talker, text, folder / "whole", "--max-num-seqs", "4", device=device)
    n = whole.prompt_tokens
    cut = speak(
        talker,
        text,
        folder / "cut",
        *("--max-num-seqs", "4", "--max-num-batched-tokens", str(n - 1), "--enable-chunked-prefill"),
        device=device,
    )

    assert whole.shapes[:2] == [(n, 0, n), (n, n, 1)]
    assert cut.shapes[:3] == [(n, 0, n - 1), (n, n - 1, 1), (n, n, 1)]
    assert [row["mtp"] for row in cut.rows[:3]] == [False, False, True]
    assert [(told["hook"], told.get("tokens"), told.get("keys")) for told in cut.heard[:4]] == [
        ("preprocess", n - 1, [n, 0, True]),
        ("preprocess", 1, [n, n - 1, True]),
        ("preprocess_decode_batch", 1, [n, n, False]),
        ("talker_mtp", None, None),
    ]
    predicted = [told for told in cut.heard if told["hook"] == "talker_mtp"]
    assert len(predicted) == len(cut.codes) == len(cut.rows) - 2, (
        "each decode row has a frame, no row of the prompt has"
    )
    assert cut.codes, "no frame was spoken"
    assert cut.codes == whole.codes

    wave = sound(weights, cut.codes, device)
    assert wave.size > 0
    assert isfinite(wave).all()
    assert abs(wave).max() <= 1, "not a waveform"
    assert abs(wave).max() > 0, "silence"
