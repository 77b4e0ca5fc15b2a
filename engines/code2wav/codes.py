"""Codec frames on the stage channel: `codes`, int32, `[frames, groups]`; mostly one frame a message, as it is made."""

from __future__ import annotations

import numpy as np

from common.channel.frame import Frame, Rows
from engines.code2wav.chunker import Codes
from engines.code2wav.errors import CodesInvalid

CODES = "codes"
DTYPE = "int32"


def to_rows(codes: Codes) -> dict[str, Rows]:
    """From `[frames, groups]` of any integer type."""
    array = np.ascontiguousarray(codes, dtype=DTYPE)
    return {CODES: Rows.of(DTYPE, array.shape, array.data)}


def from_frame(frame: Frame, groups: int) -> Codes:
    """`[frames, groups]`. Raises CodesInvalid unless that is what the frame holds."""
    rows = frame.rows.get(CODES)
    if rows is None or rows.dtype != DTYPE or len(rows.shape) != 2 or rows.shape[1] != groups:
        held = {name: (rows.dtype, rows.shape) for name, rows in frame.rows.items()}
        raise CodesInvalid(f"channel frame {frame.index} holds {held}: expected {CODES}, {DTYPE}, [frames, {groups}]")
    return np.frombuffer(rows.data, dtype=DTYPE).reshape(rows.shape).astype(np.int64)
