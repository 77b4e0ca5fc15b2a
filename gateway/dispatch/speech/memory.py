"""What earlier answers said: kept under their audio's id, so that a later message may refer to it."""

from __future__ import annotations

from common.errors import PayloadTooLarge
from gateway.dispatch.speech.errors import AudioNotFound
from gateway.store.port import Store
from gateway.wire import ClientRequest
from gateway.wire.recalled import recalled, with_transcripts


async def recall(store: Store, request: ClientRequest, most: int) -> ClientRequest:
    """The request itself where it refers to nothing. Raises BadRequest, AudioNotFound, PayloadTooLarge,
    StoreUnavailable.

    A short reference may stand for a long answer, and many for the same one: so all of them together stand for `most`
    bytes, and nothing is built before that is known.
    """
    found = recalled(request)
    if not found:
        return request
    kept = await store.transcripts(sorted({one.audio_id for one in found}))
    sizes = {audio_id: len(text.encode()) for audio_id, text in kept.items() if text is not None}
    said, total = {}, 0
    for one in found:
        text = kept[one.audio_id]
        if text is None:
            raise AudioNotFound(
                f"{one.param} is {one.audio_id!r:.80}, which is not known: it was never given out, or its expires_at "
                "is over",
                param=one.param,
            )
        total += sizes[one.audio_id]
        if total > most:
            raise PayloadTooLarge(
                f"{one.param} brings what earlier answers said to {total} bytes; expected {most} at most",
                param=one.param,
            )
        said[one.message] = text
    return with_transcripts(request, said)
