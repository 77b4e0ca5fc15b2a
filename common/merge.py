"""Prompt-side and decode-side rows of one request, joined to the rows that an unsplit engine would have had.

Prefill computes the prompt's rows; decode computes the rows behind them and, as every engine must to get a first
token, at least the last of the prompt again. How many they share depends on what decode did: one row after a remote
load of the whole prompt, more after a partial one, all of the prompt when prefill was bypassed or decode started anew.

    prefill |0 1 2 3 4 5 6 7|
    decode                |7 8 9|     overlap = 8 + 3 - 10 = 1
    merged  |0 1 2 3 4 5 6 7|8 9|
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from common.errors import DuetError


class MergeInvalid(DuetError):
    """The two sides cannot be the rows of one request; the message has the counts."""

    code = "conditioning_invalid"


class Array(Protocol):
    """What the merge needs of a side's rows: numpy's and torch's arrays have it."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, rows: slice, /) -> Self: ...


A = TypeVar("A", bound=Array)


@dataclass(frozen=True, slots=True)
class Join:
    """Take prefill's rows `[:prefill]`, then decode's `[overlap:]`."""

    prefill: int
    overlap: int


def join(prefill: int, decode: int, total: int) -> Join:
    """The overlap rule for so many rows of each side. `total` is how many the request must have: its prompt tokens and
    its output tokens, less the last one, which no engine computes a row for.

    Raises MergeInvalid if rows are missing, or if either side has more than it can. Nothing is cut to fit.
    """
    counts = f"{prefill} rows of prefill and {decode} of decode for {total}"
    if min(prefill, decode, total) < 0:
        raise MergeInvalid(f"{counts}: expected 0 or more")
    overlap = prefill + decode - total
    if overlap < 0:
        raise MergeInvalid(f"{counts}: {-overlap} are missing")
    if overlap > min(prefill, decode):
        raise MergeInvalid(f"{counts}: they would overlap by {overlap}, more than one side has")
    return Join(prefill, overlap)


def merge(prefill: Mapping[str, A], decode: Mapping[str, A], total: int) -> dict[str, tuple[A, A]]:
    """For each tensor, the two slices that stand one behind the other; the caller's library concatenates them.

    Both sides must have the same tensors (say, `embedding` and `hidden`), each of `[rows, …]`, and each side the same
    rows in all of its tensors. Raises MergeInvalid otherwise, and as `join` does.
    """
    if set(prefill) != set(decode) or not prefill:
        raise MergeInvalid(f"prefill has {sorted(prefill)} and decode {sorted(decode)}: expected the same, and some")
    how = join(_rows("prefill", prefill), _rows("decode", decode), total)
    merged = {name: (prefill[name][: how.prefill], decode[name][how.overlap :]) for name in prefill}
    for name, (first, second) in merged.items():
        if tuple(first.shape[1:]) != tuple(second.shape[1:]):
            raise MergeInvalid(
                f"{name}: prefill's rows are {tuple(first.shape[1:])}, decode's {tuple(second.shape[1:])}"
            )
        if first.shape[0] + second.shape[0] != total:
            raise MergeInvalid(f"{name}: merged to {first.shape[0] + second.shape[0]} rows, expected {total}")
    return merged


def _rows(side: str, tensors: Mapping[str, A]) -> int:
    counts = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if len(set(counts.values())) != 1:
        raise MergeInvalid(f"{side}'s tensors have different numbers of rows: {counts}")
    return next(iter(counts.values()))
