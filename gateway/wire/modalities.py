"""Whether a client wants to hear its answer: `modalities`, and the `audio` object that goes with it.

What is in `audio` is for whoever speaks to judge; that the two belong together is told here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from common.errors import BadRequest

TEXT, AUDIO = "text", "audio"
ASKS = ("modalities", "audio")
"""The fields that ask for sound; engines see neither."""
_SHOWN = 80


def wants_audio(fields: Mapping[str, msgspec.Raw], *, chat: bool) -> bool:
    """Whether sound is asked for. Raises BadRequest for modalities that are none, or `audio` without them."""
    asked = bytes(fields.get("modalities", b"null"))
    speaks = False if asked == b"null" else _speaks(asked)
    if speaks and not chat:
        raise BadRequest("modalities has audio; expected it for /v1/chat/completions only", param="modalities")
    given = bytes(fields.get("audio", b"null")) != b"null"
    if speaks and not given:
        raise BadRequest("audio is missing; expected {voice, format} with modalities text and audio", param="audio")
    if given and chat and not speaks:
        raise BadRequest('audio is given; expected modalities ["text", "audio"] with it', param="audio")
    return speaks


def _speaks(asked: bytes) -> bool:
    try:
        modalities = frozenset(msgspec.json.decode(asked, type=list[str]))
    except (msgspec.DecodeError, RecursionError):
        modalities = frozenset()
    if modalities not in ({TEXT}, {TEXT, AUDIO}):
        seen = asked[:_SHOWN].decode("utf-8", "replace")
        raise BadRequest(f'modalities is {seen}; expected ["text"] or ["text", "audio"]', param="modalities")
    return AUDIO in modalities
