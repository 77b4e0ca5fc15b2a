"""However frames are cut and wherever the audio begins: every sample once, in order, and none of them early."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.channel.frame import Frame, Rows
from common.errors import ConfigurationError
from engines.code2wav.chunker import Chunk, Chunker, Codes, Plan
from engines.code2wav.codes import CODES, from_frame, to_rows
from engines.code2wav.errors import CodesInvalid
from engines.code2wav.geometry import Geometry, lookback

QWEN = Geometry.of(ratios=(2, 2), rates=(8, 5, 4, 3), codebook=2048, groups=16)
SMALL = Geometry.of(ratios=(2,), rates=(3,), codebook=1000, groups=2)
plans = st.builds(Plan, st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


def frame(number: int) -> Codes:
    return np.array([number, 0])


def heard(chunk: Chunk) -> list[int]:
    """What a perfect vocoder makes of it, each sample named by its place in the whole."""
    places = [
        int(codes[0]) * SMALL.samples_per_frame + at for codes in chunk.codes for at in range(SMALL.samples_per_frame)
    ]
    return places[: SMALL.samples(len(chunk.codes))][chunk.begin :]


def test_the_numbers_of_qwen3_omni_come_from_its_rates() -> None:
    assert (QWEN.samples_per_frame, QWEN.tail) == (1920, 555)
    assert QWEN.samples(25) == 47_445
    assert QWEN.samples(0) == 0


@pytest.mark.parametrize(("window", "layers", "frames"), [(72, 8, 8 * 71 + 10), (8, 2, 2 * 7 + 10), (1, 8, 10)])
def test_a_sample_depends_on_frames_by_attention_and_ten_by_convolutions(window: int, layers: int, frames: int) -> None:
    assert lookback(ratios=(2, 2), rates=(8, 5, 4, 3), window=window, layers=layers, tail=QWEN.tail) == frames


@given(samples=st.integers(1, 100_000))
def test_frames_are_the_most_that_do_not_pass_so_many_samples(samples: int) -> None:
    frames = QWEN.frames(samples)
    assert QWEN.samples(frames) <= samples < QWEN.samples(frames + 1)


@given(frames=st.integers(0, 60), plan=plans, data=st.data())
def test_every_sample_comes_once_and_in_order(frames: int, plan: Plan, data: st.DataObject) -> None:
    total = SMALL.samples(frames)
    begin = data.draw(st.integers(0, total), label="from_sample")
    chunker = Chunker(SMALL, plan, begin)
    chunks = [chunk for number in range(frames) if (chunk := chunker.push(frame(number)))]
    if last := chunker.finish():
        chunks.append(last)
    assert [place for chunk in chunks for place in heard(chunk)] == list(range(begin, total))
    assert all(len(chunk.codes) <= plan.left + max(plan.first, plan.chunk) for chunk in chunks)


@given(plan=plans, frames=st.integers(1, 40))
def test_a_chunk_comes_as_soon_as_its_frames_are_there(plan: Plan, frames: int) -> None:
    chunker = Chunker(SMALL, plan)
    came = [number + 1 for number in range(frames) if chunker.push(frame(number))]
    assert came == list(range(plan.first, frames + 1, plan.chunk))


@pytest.mark.parametrize("bad", [-1, 1000, 2150])
def test_frames_that_are_no_sound_are_refused(bad: int) -> None:
    chunker = Chunker(SMALL, Plan(first=2))
    assert chunker.push(frame(0)) is None
    with pytest.raises(CodesInvalid, match=f"frame 1 has the code {bad}: expected 0 to {SMALL.codebook - 1}"):
        chunker.push(frame(bad))


@pytest.mark.parametrize(("tail", "left"), [(1, 1), (20, 1), (21, 2), (45, 3)])
def test_a_plan_must_reach_back_to_where_the_chunk_before_ended(tail: int, left: int) -> None:
    geometry = Geometry(20, tail, 8, 1)
    Plan(left=left).check(geometry)
    if left > 1:
        with pytest.raises(ConfigurationError, match=f"left is {left - 1}, expected {left} or more"):
            Plan(left=left - 1).check(geometry)


@pytest.mark.parametrize("name", ["first", "chunk", "left"])
def test_a_plan_without_frames_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"chunk plan: {name} is 0, expected 1 or more"):
        Plan(**{name: 0})


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"upsample_rates \(8, 0\)"):
        Geometry.of(ratios=(2,), rates=(8, 0), codebook=8, groups=1)


def test_codes_travel_as_rows() -> None:
    codes = np.arange(32).reshape(2, 16)
    assert np.array_equal(from_frame(Frame(0, to_rows(codes)), 16), codes)
    assert np.array_equal(from_frame(Frame(0, to_rows(codes.T)), 2), codes.T)


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {"hidden": Rows.of("int32", (1, 16), bytes(64))},
        {CODES: Rows.of("int64", (1, 8), bytes(64))},
        {CODES: Rows.of("int32", (16,), bytes(64))},
        {CODES: Rows.of("int32", (2, 8), bytes(64))},
    ],
)
def test_rows_that_are_no_codes_are_refused(rows: dict[str, Rows]) -> None:
    with pytest.raises(CodesInvalid, match=r"channel frame 3 holds .*expected codes, int32, \[frames, 16\]"):
        from_frame(Frame(3, rows), 16)
