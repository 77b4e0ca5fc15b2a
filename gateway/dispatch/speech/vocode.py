"""One call of a Code2Wav: `POST /v1/code2wav`, whose answer is the sound as it is made."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from common.engine import Engine
from common.errors import EngineBroken
from gateway.transport.port import Deadlines, EngineClient
from gateway.wire import refusal

PATH = "/v1/code2wav"
SAMPLE_BYTES = 2
SAMPLES_PER_FRAME = 1920
"""80 ms at 24 kHz: more than that no frame of codes becomes."""


async def vocode(
    client: EngineClient, engine: Engine, name: str, codes: str, from_sample: int, frames: int, deadlines: Deadlines
) -> AsyncGenerator[bytes, None]:
    """s16le, whole samples, from number `from_sample` on, until the codes' end. Close it to end the call at once.

    There are `frames` of codes at most: an engine that goes on beyond their sound is broken, and might for ever.

    Raises EngineError. What was given out before is right then, and all that there was.
    """
    body = msgspec.json.encode({"codes": codes, "from_sample": from_sample})
    reply = await client.post(engine, PATH, body, headers={"x-request-id": name}, deadlines=deadlines)
    try:
        if reply.status != 200:
            raise refusal(engine.id, reply.status, await reply.read(), reply.headers.get("retry-after"))
        odd, left = b"", (frames * SAMPLES_PER_FRAME - from_sample) * SAMPLE_BYTES
        async for chunk in reply.chunks():
            pcm = odd + chunk if odd else chunk
            whole = len(pcm) - len(pcm) % SAMPLE_BYTES
            odd = pcm[whole:]
            left -= whole
            if left < 0:
                raise EngineBroken(
                    f"Code2Wav {engine.id} went on after the sound of {frames} frames; expected its end",
                    engine=engine.id,
                )
            if whole:
                yield pcm[:whole]
        if odd:
            raise EngineBroken(f"Code2Wav {engine.id} ended in half a sample", engine=engine.id)
    finally:
        reply.close()
