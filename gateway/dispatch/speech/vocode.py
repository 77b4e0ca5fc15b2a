"""One call of a Code2Wav: `POST /v1/code2wav`, whose answer is the sound as it is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import msgspec

from common.engine import Engine
from common.errors import EngineBroken
from gateway.audio.pcm import SAMPLE_BYTES, SAMPLE_RATE
from gateway.transport.port import Deadlines, EngineClient, ReplyStream
from gateway.wire import refusal

PATH = "/v1/code2wav"
RATE, SAMPLES_PER_FRAME, TAIL = "x-duet-sample-rate", "x-duet-samples-per-frame", "x-duet-tail-samples"
"""Headers of the answer: Hz; how many samples each frame becomes, and how many of the last one are left out."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Codes:
    """`reference` of a stream of codec frames, of which there are `most` at most; `ended` gives how many there were,
    or raises why there is no telling. `talker` is the id of the engine that makes them."""

    talker: str
    reference: str
    most: int
    ended: asyncio.Future[int]

    @property
    def frames(self) -> int:
        """How many there are, at most as long as that is not known. Raises as `ended` does."""
        return self.ended.result() if self.ended.done() else self.most

    def end(self, per_frame: int, tail: int, from_sample: int) -> int:
        """The sample behind the last. Raises EngineBroken if sound had gone beyond it: another Talker made more."""
        end = max(0, self.frames * per_frame - tail)
        if from_sample > end:
            raise EngineBroken(
                f"Talker {self.talker} made {self.frames} frames, whose sound ends at sample {end}; another's had "
                f"reached {from_sample}",
                engine=self.talker,
            )
        return end


class Miscounted(EngineBroken):
    """The sound is not as long as the Talker's frames: it ended at sample `at`, or went on there."""

    def __init__(self, message: str, *, engine: str, at: int) -> None:
        super().__init__(message, engine=engine)
        self.at = at


class Part(NamedTuple):
    """s16le, whole samples; `frames` is how many have begun to sound with it."""

    pcm: bytes
    frames: int


async def vocode(
    client: EngineClient, engine: Engine, name: str, codes: Codes, from_sample: int, deadlines: Deadlines
) -> AsyncGenerator[Part, None]:
    """From sample number `from_sample` on, until the codes' end. Close it to end the call at once.

    An engine that goes on beyond the sound of all frames is broken, and might for ever; so is one that ends before it.

    Raises EngineError. What was given out before is right then, and all that there was.
    """
    body = msgspec.json.encode({"codes": codes.reference, "from_sample": from_sample})
    reply = await client.post(engine, PATH, body, headers={"x-request-id": name}, deadlines=deadlines)
    try:
        if reply.status != 200:
            raise refusal(engine.id, reply.status, await reply.read(), reply.headers.get("retry-after"))
        rate, per_frame, tail = (_told(engine, reply, header) for header in (RATE, SAMPLES_PER_FRAME, TAIL))
        if rate != SAMPLE_RATE:
            raise EngineBroken(f"Code2Wav {engine.id} sounds at {rate} Hz; expected {SAMPLE_RATE}", engine=engine.id)
        at, odd = from_sample, b""
        async for chunk in reply.chunks():
            pcm = odd + chunk if odd else chunk
            whole = len(pcm) - len(pcm) % SAMPLE_BYTES
            odd = pcm[whole:]
            at += whole // SAMPLE_BYTES
            end = codes.end(per_frame, tail, from_sample)
            if at > end:
                raise Miscounted(
                    f"Code2Wav {engine.id} went on after the sound of {codes.frames} frames; expected its end",
                    engine=engine.id,
                    at=end,
                )
            if whole:
                yield Part(pcm[:whole], ceil(at / per_frame))
        if odd:
            raise EngineBroken(f"Code2Wav {engine.id} ended in half a sample", engine=engine.id)
        await asyncio.wait({codes.ended})
        end = codes.end(per_frame, tail, from_sample)
        if at != end:
            raise Miscounted(
                f"Code2Wav {engine.id} ended at sample {at}; expected {end}, the sound of {codes.frames} frames",
                engine=engine.id,
                at=at,
            )
    finally:
        reply.close()


def _told(engine: Engine, reply: ReplyStream, header: str) -> int:
    value = reply.headers.get(header, "")
    if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS):
        raise EngineBroken(
            f"Code2Wav {engine.id} sent {header} {value[:40]!r}; expected a whole number of {_DIGITS} digits at most",
            engine=engine.id,
        )
    return int(value)
