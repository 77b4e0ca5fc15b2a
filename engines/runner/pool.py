"""Rows that are kept on the device for as long as their requests live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

CHUNK = 1024
"""Rows that are made room for at once."""


class RowPool:
    """Rows `[hidden]` and their ids by slot, in chunks that take the dtypes and the device of what is put in.

    A slot that was given back is the next to be used again, so there is never room for more rows than there were at
    once, but for the rest of a chunk. A row that is kept holds no other row, nor the step's buffer that it came from.
    """

    def __init__(self) -> None:
        self._chunks: list[tuple[Tensor, Tensor]] = []
        """Rows `[CHUNK, hidden]` and ids `[CHUNK]`."""
        self._free: list[int] = []

    @property
    def room(self) -> int:
        """Rows that there is memory for."""
        return len(self._chunks) * CHUNK

    @property
    def held(self) -> int:
        """Rows that are kept."""
        return self.room - len(self._free)

    def put(self, rows: Tensor, ids: Tensor, starts: Sequence[int]) -> list[int]:
        """Keeps copies of `rows[start]` and `ids[start]` for each of `starts`, of `[tokens, hidden]` and `[tokens]`.

        Returns their slots.
        """
        count = len(starts)
        while len(self._free) < count:
            self._free += range(self.room + CHUNK - 1, self.room - 1, -1)
            self._chunks.append((rows.new_empty(CHUNK, rows.shape[1]), ids.new_empty(CHUNK)))
        slots = self._free[: -count - 1 : -1]
        del self._free[-count:]
        chunk = slots[0] // CHUNK
        if slots[-1] // CHUNK == chunk and _side_by_side(slots) and _side_by_side(starts):
            place = slots[0] % CHUNK
            for kept, source in zip(self._chunks[chunk], (rows, ids), strict=True):
                kept[place : place + count] = source[starts[0] : starts[0] + count]
        else:
            self._scatter(rows, ids, starts, slots)
        return slots

    def _scatter(self, rows: Tensor, ids: Tensor, starts: Sequence[int], slots: Sequence[int]) -> None:
        for chunk in {slot // CHUNK for slot in slots}:
            here = [k for k, slot in enumerate(slots) if slot // CHUNK == chunk]
            places = torch.tensor([[starts[k] for k in here], [slots[k] % CHUNK for k in here]])
            source, target = places.to(rows.device, non_blocking=True)
            for kept, given in zip(self._chunks[chunk], (rows, ids), strict=True):
                kept.index_copy_(0, target, given.index_select(0, source))

    def get(self, slots: Iterable[int]) -> tuple[Tensor, Tensor]:
        """The rows in these slots, `[n, hidden]`, and their ids `[n]`."""
        places = [(self._chunks[slot // CHUNK], slot % CHUNK) for slot in slots]
        return torch.stack([rows[k] for (rows, _), k in places]), torch.stack([ids[k] for (_, ids), k in places])

    def free(self, slots: Iterable[int]) -> None:
        self._free += slots


def _side_by_side(places: Sequence[int]) -> bool:
    first = places[0]
    return places[-1] - first == len(places) - 1 and list(places) == list(range(first, first + len(places)))
