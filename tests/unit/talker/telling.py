"""Frames of a Thinker, as tests write them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from common.channel.frame import Frame, Rows
from common.conditioning import MEDIA, frame_rows

SYSTEM, USER, ASSISTANT, START, END, SOUND, PICTURE = 1, 2, 3, 4, 5, 6, 7
BREAK = 8


def turn(role: int, *ids: int) -> list[int]:
    return [START, role, BREAK, *ids, END, BREAK]


HEADER = [START, ASSISTANT, BREAK]


def frame(index: int, prompt_len: int, begin: int, ids: Sequence[int], media_at: Sequence[int] = ()) -> Frame:
    """Hidden states are one number each: their position."""
    rows = array("f", [float(at) for at in media_at]).tobytes()
    media = {MEDIA: Rows.of("float32", (len(media_at), 1), rows)} if media_at else {}
    return Frame(index, frame_rows(prompt_len, begin, ids, media_at, **media))
