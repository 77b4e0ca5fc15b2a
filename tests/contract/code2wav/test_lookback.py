"""How far back a sample depends, and what a left context that is shorter changes: on models that look back far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.contract.code2wav.conftest import CODEBOOK, Codes, made_up
from tests.contract.code2wav.hearing import CLOSE, ask
from tests.serving import serving

if TYPE_CHECKING:
    from engines.code2wav.vocoder import Vocoder

WINDOW, LAYERS = 24, 3
UPSTREAM = 25
"""The left context of transformers' own `chunked_decode`."""

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Wide:
    vocoder: Vocoder
    model: Any

    def whole(self, codes: Any) -> Any:
        """One pass over `[frames, groups]`, to samples in the model's own dtype."""
        import torch

        with torch.inference_mode():
            return self.model(torch.from_numpy(codes.T[None])).flatten().numpy()


@pytest.fixture(scope="module")
def wide(omni: Path) -> Wide:
    """As far as a test can afford. The real window and layers are 72 and 8."""
    return _wide(omni, WINDOW, LAYERS)


async def streamed(vocoder: Vocoder, codes: Codes, said: Any, left: int) -> Any:
    from engines.code2wav.app import create_app
    from engines.code2wav.chunker import Plan

    codes.put("r", said)
    codes.end("r")
    app = create_app(vocoder, Plan(left=left))
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await ask(client, codes.reference("r"))


async def test_a_left_context_of_the_lookback_gives_one_full_pass(wide: Wide, codes: Codes) -> None:
    said = made_up(200)
    audio, expected = await streamed(wide.vocoder, codes, said, wide.vocoder.lookback), wide.whole(said)
    assert len(audio) == len(expected)
    assert np.abs(audio - expected).max() < CLOSE
    assert expected.std() > 0.05, "silence would be equal too"


async def test_a_shorter_one_does_not(wide: Wide, codes: Codes) -> None:
    assert wide.vocoder.lookback > UPSTREAM
    said = made_up(200)
    audio, expected = await streamed(wide.vocoder, codes, said, UPSTREAM), wide.whole(said)
    assert len(audio) == len(expected)
    assert np.abs(audio - expected).max() > 10 * CLOSE


@pytest.mark.parametrize(("window", "layers"), [(1, 1), (8, 2), (WINDOW, LAYERS)])
def test_samples_depend_on_the_first_frame_of_the_lookback_and_none_before(
    omni: Path, window: int, layers: int
) -> None:
    """In float64 and with all branches at full strength, so that nothing is rounded away."""
    import torch

    wide = _wide(omni, window, layers)
    for name, weight in wide.model.named_parameters():
        if name.endswith("gamma") or "layer_scale" in name:
            torch.nn.init.ones_(weight)
    wide.model.double()
    back, geometry = wide.vocoder.lookback, wide.vocoder.geometry
    said = made_up(back + 5)
    plain = wide.whole(said)
    for frame, depends in ((0, False), (1, True)):
        other = said.copy()
        other[frame] = (other[frame] + CODEBOOK // 2) % CODEBOOK
        changed = wide.whole(other) != plain
        assert changed.any()
        assert changed[geometry.samples(back + 1) :].any() == depends


def _wide(omni: Path, window: int, layers: int) -> Wide:
    """The tiny model's sizes, with another window and other layers; audible as it is."""
    import torch
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

    from engines.code2wav.vocoder import Vocoder
    from engines.tiny.omni import _tune

    config = Vocoder.load(omni).config
    config.sliding_window, config.num_hidden_layers = window, layers
    torch.manual_seed(0)
    model = Qwen3OmniMoeCode2Wav(config).eval()
    with torch.no_grad():
        _tune(model)
    return Wide(Vocoder(model), model)
