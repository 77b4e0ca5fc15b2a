"""The server.

| path | |
| --- | --- |
| `POST /v1/code2wav` | JSON `{"codes": "duet+ipc://…", "from_sample": 0}`; answers with audio as it is made |
| `GET /health`, `GET /metrics` | whether it is up; what it counted |
| `GET /v1/models`, `GET /duet/identity` | the name that it serves; who it is, in the names of all engines |

The answer is `audio/pcm`: s16le, mono, 24 kHz, chunked, and its headers tell what turns samples into frames. A failure
before the first sample has a status and OpenAI's error body; after it, the connection is broken off, so that nobody
takes half an answer for a whole one. A client that leaves ends its pull and its place in the batch at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from common.channel import ChannelError, Puller, Reference
from common.errors import BadRequest, DuetError
from common.strict import json_object
from common.tasks import end
from engines.answering import answered, refused
from engines.code2wav.batcher import Batcher, Limits
from engines.code2wav.chunker import Chunk, Chunker, Plan
from engines.code2wav.codes import from_frame
from engines.code2wav.ending import Calls, Sound
from engines.code2wav.geometry import SAMPLE_RATE
from engines.code2wav.identity import PATH, identity_of, models_of, require_key
from engines.code2wav.metrics import Metrics
from engines.code2wav.vocoder import Vocoder, pcm16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    codes: Reference
    from_sample: int

    @classmethod
    def read(cls, raw: bytes) -> Ask:
        """Raises BadRequest, ChannelError for a reference that is none."""
        try:
            body: dict[str, Any] | None = json_object(raw.decode())
        except ValueError:
            body = None
        if body is None or set(body) - {"codes", "from_sample"}:
            raise BadRequest("expected a JSON object with codes, and from_sample if it does not begin at 0")
        codes, begin = body.get("codes"), body.get("from_sample", 0)
        if not isinstance(codes, str):
            raise BadRequest(
                f"codes is {codes!r:.200}: expected a reference, duet+ipc://… or duet+tcp://…", param="codes"
            )
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise BadRequest(f"from_sample is {begin!r:.200}: expected a whole number, 0 or more", param="from_sample")
        return cls(Reference.parse(codes), begin)


class Server:
    def __init__(self, vocoder: Vocoder, plan: Plan, limits: Limits, model: str, api_key: str | None) -> None:
        self.metrics = Metrics()
        self.running: set[asyncio.Task[Any]] = set()
        self._model = model
        self._api_key = api_key
        self._vocoder = vocoder
        self._plan = plan
        self._limits = limits
        self._headers = {
            "x-duet-sample-rate": str(SAMPLE_RATE),
            "x-duet-samples-per-frame": str(vocoder.geometry.samples_per_frame),
            "x-duet-tail-samples": str(vocoder.geometry.tail),
        }

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        batcher = Batcher(self._vocoder.decode, self._limits, self.metrics.batch.observe)
        async with batcher as self._batcher, Puller() as self._puller:
            try:
                yield
            finally:
                await end(*self.running)  # uvicorn cancels those that take too long, and does not wait for them

    async def health(self, request: Request) -> Response:
        return Response(status_code=200)

    async def models(self, request: Request) -> Response:
        try:
            require_key(self._api_key, request.headers.get("authorization"))
        except DuetError as e:
            return refused(e)
        return JSONResponse(models_of(self._model))

    async def identity(self, request: Request) -> Response:
        return JSONResponse(identity_of(self._model))

    async def expose(self, request: Request) -> Response:
        return Response(self.metrics.exposition(), media_type="text/plain; version=0.0.4")

    async def speak(self, request: Request) -> Response:
        try:
            require_key(self._api_key, request.headers.get("authorization"))
            ask = Ask.read(await request.body())
        except ChannelError as e:
            return refused(e, 400)
        except DuetError as e:
            return refused(e)
        audio = self._audio(ask)
        return await answered(request.receive, audio, anext(audio, b""), lambda head: Sound(head, audio, self._headers))

    async def _audio(self, ask: Ask) -> AsyncGenerator[bytes, None]:
        """s16le of each chunk. Counts what comes of it, however it ends."""
        chunker = Chunker(self._vocoder.geometry, self._plan, ask.from_sample)
        with self.metrics.running.track_inprogress():
            try:
                async with aclosing(self._chunks(ask, chunker)) as chunks:
                    async for chunk in chunks:
                        wave = (await self._batcher.decode(chunk.codes))[chunk.begin :]
                        self.metrics.samples.inc(len(wave))
                        yield pcm16(wave)
            except DuetError as e:
                self.metrics.failed.labels(e.code).inc()
                log.warning("speech of %s failed: %s", ask.codes.key, e.message)
                raise

    async def _chunks(self, ask: Ask, chunker: Chunker) -> AsyncGenerator[Chunk, None]:
        """Pulled from the first frame on even if the audio begins later: a frame is 64 bytes, and context is needed."""
        async with aclosing(self._puller.frames(ask.codes)) as frames:
            async for message in frames:
                for frame in from_frame(message, self._vocoder.geometry.groups):
                    if chunk := chunker.push(frame):
                        yield chunk
        if chunk := chunker.finish():
            yield chunk


def create_app(
    vocoder: Vocoder,
    plan: Plan | None = None,
    limits: Limits | None = None,
    *,
    model: str = "code2wav",
    api_key: str | None = None,
) -> Starlette:
    """`model` is the name that it tells; `api_key` what whoever asks for speech must send, None for nothing.

    Raises ConfigurationError for a plan that does not go with the model."""
    plan = plan or Plan()
    plan.check(vocoder.geometry)
    server = Server(vocoder, plan, limits or Limits(), model, api_key)
    routes = [
        Route("/v1/code2wav", server.speak, methods=["POST"]),
        Route("/health", server.health),
        Route("/v1/models", server.models),
        Route(PATH, server.identity),
        Route("/metrics", server.expose),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan, middleware=[Middleware(Calls, server.running)])
