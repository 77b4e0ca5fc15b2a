"""How many samples so many codec frames give.

Each transposed convolution of the decoder upsamples by its rate and then trims that rate from both ends of what it
made, so it loses one input's worth at the end: what these samples are depends on a frame that is not there yet. Over
all layers of Qwen3-Omni that is 1920 samples a frame less 555. (transformers, `Qwen3OmniMoeCausalTransConvNet`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from common.errors import ConfigurationError

SAMPLE_RATE = 24_000
"""Hz of every Qwen3-Omni; its configuration does not say it."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """`samples_per_frame` (1920), and `tail` (555), the samples that the last frame does not give yet.

    `codebook` and `groups`: codes of a frame are `groups` numbers of 0 to `codebook - 1`.
    """

    samples_per_frame: int
    tail: int
    codebook: int
    groups: int

    @classmethod
    def of(cls, *, ratios: Sequence[int], rates: Sequence[int], codebook: int, groups: int) -> Geometry:
        """From `upsampling_ratios`, which lose nothing, and `upsample_rates`, which lose their last input.

        Raises ConfigurationError for a rate below 1.
        """
        if not rates or min(*ratios, *rates, codebook, groups) < 1:
            raise ConfigurationError(
                f"code2wav_config: upsampling_ratios {tuple(ratios)}, upsample_rates {tuple(rates)}, codebook_size "
                f"{codebook}, num_quantizers {groups}: expected numbers from 1 on"
            )
        tail = 0
        for rate in rates:
            tail = (tail + 1) * rate
        return cls(prod(ratios) * prod(rates), tail, codebook, groups)

    def samples(self, frames: int) -> int:
        """What decoding so many frames gives."""
        return max(0, frames * self.samples_per_frame - self.tail)

    def frames(self, samples: int) -> int:
        """The most frames that give no more than so many samples."""
        return (samples + self.tail) // self.samples_per_frame if samples else 0
