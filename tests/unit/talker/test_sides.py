"""The general path: all rows of both sides of a split, over the channel's frames, joined by the overlap rule."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from common.channel.frame import Frame  # noqa: E402
from common.conditioning import EMBEDDING, HIDDEN, ConditioningInvalid, frame_rows  # noqa: E402
from common.merge import MergeInvalid  # noqa: E402
from engines.channel import to_rows, to_tensor  # noqa: E402
from engines.thinker.conditioning.sides import joined, side  # noqa: E402

PROMPT, TOTAL, WIDTH = 8, 11, 3
ROWS = {name: torch.randn(TOTAL, WIDTH).to(torch.bfloat16) for name in (EMBEDDING, HIDDEN)}


def told(*spans: tuple[int, int]) -> list[Frame]:
    """One engine that computed these positions; it tells all ids from 0 on."""
    frames, begin = [], 0
    for index, (first, end) in enumerate(spans):
        rows = {name: to_rows(ROWS[name][first:end]) for name in ROWS}
        frames.append(Frame(index, frame_rows(PROMPT, begin, list(range(begin, end)), **rows)))
        begin = end
    return frames


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        pytest.param([(0, 8)], [(7, 8), (8, 9), (9, 10), (10, 11)], id="remote load"),
        pytest.param([(0, 5), (5, 8)], [(4, 8), (8, 11)], id="partial load, chunked prefill"),
        pytest.param([(0, 8)], [(0, 8), (8, 11)], id="decode began anew"),
    ],
)
def test_the_rows_are_an_unsplit_engines(prefill: list[tuple[int, int]], decode: list[tuple[int, int]]) -> None:
    found = joined(side(told(*prefill)), side(told(*decode)), TOTAL)
    for name, rows in ROWS.items():
        assert torch.equal(found[name], rows)


def test_missing_rows_are_never_filled() -> None:
    with pytest.raises(MergeInvalid, match="2 are missing"):
        joined(side(told((0, 5))), side(told((7, 11))), TOTAL)


def test_an_engine_that_sends_less_is_told_apart() -> None:
    with pytest.raises(ConditioningInvalid, match="expected every row"):
        side([Frame(0, frame_rows(PROMPT, 0, [1, 2]))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32])
def test_tensors_travel_unchanged(dtype: torch.dtype) -> None:
    tensor = (torch.randn(4, 6) * 10).to(dtype)[:, ::2]
    assert torch.equal(to_tensor(to_rows(tensor)), tensor)
    assert to_tensor(to_rows(tensor[:0])).shape == (0, 3)
