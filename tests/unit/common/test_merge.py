"""The overlap rule: what both sides computed becomes an unsplit engine's rows, and what cannot be is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.merge import Join, MergeInvalid, join, merge


def side(first: int, last: int) -> dict[str, np.ndarray]:
    """Rows [first, last) of a request, in two tensors of different widths; each row holds its own number."""
    numbers = np.arange(first, last, dtype=np.float32)[:, None]
    return {"embedding": np.repeat(numbers, 4, 1), "hidden": np.repeat(-numbers, 6, 1)}


def merged(prefill: dict[str, np.ndarray], decode: dict[str, np.ndarray], total: int) -> dict[str, np.ndarray]:
    return {name: np.concatenate(parts) for name, parts in merge(prefill, decode, total).items()}


@given(st.data())
def test_the_merged_rows_are_an_unsplit_engines(data: st.DataObject) -> None:
    """Any prompt and answer, and decode beginning anywhere in the prompt: after a full load, a partial one, or none."""
    prompt = data.draw(st.integers(1, 40))
    total = prompt + data.draw(st.integers(0, 40))
    begins = data.draw(st.integers(0, prompt))
    found = merged(side(0, prompt), side(begins, total), total)
    for name, expected in side(0, total).items():
        assert np.array_equal(found[name], expected)


@pytest.mark.parametrize(
    ("case", "prefill", "decode", "total", "overlap"),
    [
        ("remote load of the whole prompt", 221, 10, 230, 1),
        ("a local prefix hit on decode: still its last row", 221, 13, 233, 1),
        ("decode loaded all but a block", 221, 45, 233, 33),
        ("prefill was bypassed", 0, 230, 230, 0),
        ("another decode engine began anew after a failure", 221, 230, 230, 221),
        ("the answer is one token", 17, 1, 17, 1),
        ("nothing is behind the prompt and decode sent none", 17, 0, 17, 0),
    ],
)
def test_every_way_that_decode_can_begin(case: str, prefill: int, decode: int, total: int, overlap: int) -> None:
    assert join(prefill, decode, total) == Join(prefill, overlap), case


@given(prefill=st.integers(0, 50), decode=st.integers(0, 50), total=st.integers(0, 100))
def test_what_cannot_be_is_refused_and_nothing_is_cut(prefill: int, decode: int, total: int) -> None:
    possible = max(prefill, decode) <= total <= prefill + decode
    try:
        how = join(prefill, decode, total)
    except MergeInvalid as e:
        assert not possible
        assert f"{prefill} rows of prefill and {decode} of decode for {total}" in e.message
    else:
        assert possible
        assert how.prefill + decode - how.overlap == total


@pytest.mark.parametrize(
    ("prefill", "decode", "why"),
    [
        ({}, {}, "prefill has [] and decode []"),
        (side(0, 3), {"embedding": side(2, 4)["embedding"]}, "['embedding', 'hidden'] and decode ['embedding']"),
        (
            {**side(0, 3), "hidden": side(0, 2)["hidden"]},
            side(2, 4),
            "prefill's tensors have different numbers of rows",
        ),
        (side(0, 3), {**side(2, 4), "hidden": np.zeros((2, 5))}, "hidden: prefill's rows are (6,), decode's (5,)"),
        (side(0, 3), side(4, 4), "1 are missing"),
    ],
)
def test_sides_that_do_not_fit_are_told(
    prefill: dict[str, np.ndarray], decode: dict[str, np.ndarray], why: str
) -> None:
    with pytest.raises(MergeInvalid, match=re.escape(why)):
        merge(prefill, decode, 4)


def test_torch_tensors_are_joined_as_they_are() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    prefill = {"hidden": torch.arange(6, dtype=torch.bfloat16).reshape(3, 2)}
    decode = {"hidden": torch.arange(4, 10, dtype=torch.bfloat16).reshape(3, 2)}
    found = torch.cat(merge(prefill, decode, 5)["hidden"])
    assert torch.equal(found, torch.arange(10, dtype=torch.bfloat16).reshape(5, 2))
