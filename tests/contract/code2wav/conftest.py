"""The tiny model's vocoder, a server over it, and a producer of codes beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from common.channel import Key, Publisher
from tests.serving import serving

if TYPE_CHECKING:
    from engines.code2wav.vocoder import Vocoder

CODEBOOK, GROUPS = 64, 16


@pytest.fixture(scope="session")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    from engines.tiny import make_omni

    return make_omni(tmp_path_factory.mktemp("models") / "omni")


@pytest.fixture(scope="session")
def vocoder(omni: Path) -> Vocoder:
    from engines.code2wav.vocoder import Vocoder

    return Vocoder.load(omni)


@pytest.fixture(scope="session")
def whole(omni: Path) -> Any:
    """One pass of the whole model's Code2Wav as transformers loads it, `[frames, groups]` to samples."""
    import torch
    from transformers import Qwen3OmniMoeForConditionalGeneration

    code2wav = Qwen3OmniMoeForConditionalGeneration.from_pretrained(omni, dtype=torch.float32).eval().code2wav

    def decode(codes: Any) -> Any:
        with torch.no_grad():
            return code2wav(torch.from_numpy(codes.T[None])).flatten().numpy()

    return decode


@dataclass
class Codes:
    """Streams of codes, as a Talker publishes them: one frame at a time."""

    publisher: Publisher

    def put(self, name: str, frames: Any) -> None:
        from engines.code2wav.codes import to_rows

        for frame in frames:
            self.publisher.publish(Key(name, "talker"), to_rows(frame[None]))

    def end(self, name: str, error: str | None = None) -> None:
        self.publisher.close(Key(name, "talker"), error)

    def reference(self, name: str) -> str:
        return str(self.publisher.reference(Key(name, "talker")))


@pytest.fixture
def codes() -> Iterator[Codes]:
    with Publisher() as publisher:
        yield Codes(publisher)


@pytest.fixture
async def client(vocoder: Vocoder) -> AsyncIterator[httpx.AsyncClient]:
    from engines.code2wav.app import create_app

    async with serving(create_app(vocoder)) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


def made_up(frames: int, seed: int = 0) -> Any:
    """`[frames, groups]`, as a Talker might say them."""
    return np.random.default_rng(seed).integers(0, CODEBOOK, (frames, GROUPS))
