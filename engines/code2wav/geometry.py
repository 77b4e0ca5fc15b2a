"""How many samples so many codec frames give.

Each transposed convolution of the decoder upsamples by its rate and then trims that rate from both ends of what it
made, so it loses one input's worth at the end: what these samples are depends on a frame that is not there yet. Over
all layers of Qwen3-Omni that is 1920 samples a frame less 555. (transformers, `Qwen3OmniMoeCausalTransConvNet`.)

Backwards a sample depends on more: on `lookback` frames, mostly by attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from common.errors import ConfigurationError

SAMPLE_RATE = 24_000
"""Hz of every Qwen3-Omni; its configuration does not say it."""

KERNEL = 7
"""Of every convolution that looks back. A constant of transformers' model, as the next."""
DILATIONS = (1, 3, 9)
"""Of the three behind each transposed one of the decoder."""


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


def lookback(*, ratios: Sequence[int], rates: Sequence[int], window: int, layers: int, tail: int) -> int:
    """Frames before a chunk's own that its samples depend on; with so many decoded again, they are those of one full
    pass. `window` is `sliding_window`, which counts the frame itself.

    Followed from a chunk's first sample, which is `tail` before its first frame, back through all layers. A transposed
    convolution looks no farther back than to the input that an output lies in.
    """
    reach = KERNEL - 1
    at = -tail - reach
    for rate in reversed(rates):
        at = (at - reach * sum(DILATIONS)) // rate
    at -= reach
    for ratio in reversed(ratios):
        at = (at - reach) // ratio
    return layers * (window - 1) - at
