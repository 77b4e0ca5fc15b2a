"""What earlier answers said: kept under their audio's id, so that a later message may refer to it."""

from __future__ import annotations

from gateway.dispatch.speech.errors import AudioNotFound
from gateway.store.port import Store
from gateway.wire import ClientRequest
from gateway.wire.recalled import recalled, with_transcripts


async def recall(store: Store, request: ClientRequest) -> ClientRequest:
    """The request itself where it refers to nothing. Raises BadRequest, AudioNotFound, StoreUnavailable."""
    found = recalled(request)
    if not found:
        return request
    kept = await store.transcripts(sorted({one.audio_id for one in found}))
    said = {}
    for one in found:
        text = kept[one.audio_id]
        if text is None:
            raise AudioNotFound(
                f"{one.param} is {one.audio_id!r:.80}, which is not known: it was never given out, or its expires_at "
                "is over",
                param=one.param,
            )
        said[one.message] = text
    return with_transcripts(request, said)
