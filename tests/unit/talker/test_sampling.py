"""Choosing codes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engines.talker.request import GREEDY, Residual  # noqa: E402
from engines.talker.sampling import Chooser  # noqa: E402

DEVICE = torch.device("cpu")
FREE = Residual(temperature=1.0, top_k=0, top_p=1.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, 32, generator=seeded(1)) * 3


def test_greedy_rows_take_the_likeliest_beside_sampled_ones() -> None:
    given = logits(3)
    chosen = Chooser([GREEDY, FREE, GREEDY], [None, seeded(0), None], DEVICE)(given)
    assert chosen[[0, 2]].tolist() == given[[0, 2]].argmax(-1).tolist()


def test_a_seed_draws_the_same_alone_and_among_others() -> None:
    given = logits(4)
    alone = Chooser([FREE], [seeded(5)], DEVICE)
    among = Chooser([FREE, FREE, GREEDY, FREE], [seeded(1), seeded(2), None, seeded(5)], DEVICE)
    for _ in range(8):
        assert int(among(given)[3]) == int(alone(given[3:])[0])


def test_top_k_one_and_a_tiny_top_p_are_greedy() -> None:
    given = logits(2)
    narrow = [Residual(1.0, 1, 1.0), Residual(1.0, 0, 1e-6)]
    for _ in range(4):
        assert Chooser(narrow, [None, None], DEVICE)(given).tolist() == given.argmax(-1).tolist()


def test_draws_follow_the_probabilities_that_are_left() -> None:
    given = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(4000, -1)
    row = Residual(temperature=1.0, top_k=3, top_p=0.9)
    generator = seeded(3)
    chosen = Chooser([row] * 4000, [generator] * 4000, DEVICE)(given)
    shares = torch.bincount(chosen, minlength=4) / 4000
    kept = torch.tensor([2.0, 1.0]).softmax(-1)  # 0.67 and 0.24 of three are 0.9 and more
    assert shares[2:].tolist() == [0.0, 0.0]
    assert shares[:2].tolist() == pytest.approx(kept.tolist(), abs=0.03)


@pytest.mark.parametrize("temperature", [5e-324, 1e-44, 1e-9])
def test_next_to_no_temperature_takes_the_likeliest(temperature: float) -> None:
    """A logit of nothing, too: divided by nothing it would be no number, and first in every order."""
    given = torch.tensor([[0.0, 5.0, -3.0]])
    assert Chooser([Residual(temperature, 0, 1.0)], [seeded(0)], DEVICE)(given).tolist() == [1]
