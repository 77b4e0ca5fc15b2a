"""Some rows on their way: named arrays with dtype and shape over buffers that nobody copies.

There is no numpy and no torch here: `numpy.frombuffer` and `torch.frombuffer` make arrays of `Rows.data`, and
`memoryview(array)` makes `Rows` of an array. So bfloat16 travels too, which numpy does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from operator import index

from common.channel.errors import ChannelError

ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
"""Bytes of one item of each dtype, under the names that numpy and torch share. Little-endian."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One array in C order. `data` is bytes-like and contiguous; it must not be changed after it is published."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @classmethod
    def of(cls, dtype: str, shape: tuple[int, ...], buffer: bytes | bytearray | memoryview) -> Rows:
        """Raises ChannelError unless dtype, shape and the buffer's size agree. A shape may be of other whole numbers,
        such as numpy's; they become `int`, which JSON can say."""
        data = memoryview(buffer)
        try:
            shape = tuple(index(size) for size in shape)
        except TypeError:
            raise ChannelError(f"rows {dtype} {shape}: a shape is of whole numbers") from None
        if not data.c_contiguous:
            raise ChannelError(f"rows {dtype} {shape}: the buffer is not contiguous")
        expected = ITEM_BYTES.get(dtype, -1) * prod(shape)
        if expected < 0 or any(size < 0 for size in shape) or data.nbytes != expected:
            kinds = ", ".join(ITEM_BYTES)
            raise ChannelError(
                f"rows dtype {dtype!r}, shape {shape}, {data.nbytes} bytes: expected {kinds}, and a shape that fits"
            )
        flat = data.cast("B") if data.nbytes else memoryview(b"")
        return cls(dtype, shape, flat)


@dataclass(frozen=True, slots=True)
class Frame:
    """What one publish carries; `index` counts a stream's frames from 0. Names are the stages' own."""

    index: int
    rows: Mapping[str, Rows]

    @property
    def nbytes(self) -> int:
        return sum(rows.data.nbytes for rows in self.rows.values())
