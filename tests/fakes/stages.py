"""A Talker and a Code2Wav without models: real HTTP, real codes over a real stage channel, sound that can be computed.

    async with talker_server(FakeTalker(frames=20)) as talker, code2wav_server(FakeCode2Wav()) as code2wav: …
    assert heard == sound(seed=42, frames=20)

The Talker makes the same codes for the same seed, as a real one does, and hears no Thinker: a test says how far it may
speak (`may_speak`) and what goes wrong. The Code2Wav turns each frame into 1920 samples and ends 555 early.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from common.channel import Key, Publisher, Puller, Reference, Rows
from common.errors import BadRequest, DuetError
from common.tasks import end
from engines.sim.runner import serving
from engines.sim.server import BREAK_OFF

GROUPS = 16
SAMPLES, TAIL = 1920, 555
MODEL = "sim"


def codes_of(seed: int, frame: int) -> Any:
    """int32 `[1, 16]`."""
    return np.array([[(seed * 7919 + frame * 613 + group) % 2048 for group in range(GROUPS)]], dtype=np.int32)


def sound(seed: int, frames: int) -> bytes:
    """s16le of so many frames."""
    if not frames:
        return b""
    parts = [_frame_sound(int(codes_of(seed, frame)[0, 0])) for frame in range(frames)]
    return bytes(np.concatenate(parts)[: frames * SAMPLES - TAIL].tobytes())


def _frame_sound(code: int) -> Any:
    return ((np.arange(SAMPLES) * 7 + code * 31) % 20_000 - 10_000).astype("<i2")


@dataclass
class Broken(Exception):
    """The connection is broken off here."""


class SpeakerUnknown(BadRequest):
    """In the words of the Talker's SpeechUnsupported."""

    code = "speech_unsupported"


@dataclass
class FakeTalker:
    """`frames` it makes for each request. `asked` has every body, `left` the ids of requests whose client left.

    `may_speak`: how many frames it may have made by now, None for all. `breaks_at`: it dies at this frame of its next
    requests, its codes with it. `refuses` is a status and an error body for what comes next.
    """

    frames: int = 10
    speakers: tuple[str, ...] = ("ethan", "chelsie")
    model: str = MODEL
    may_speak: int | None = None
    breaks_at: int | None = None
    refuses: tuple[int, dict[str, Any]] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    url: str = ""
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def let_speak(self, frames: int | None) -> None:
        async with self.moved:
            self.may_speak = frames
            self.moved.notify_all()

    async def events(self, ask: dict[str, Any], publisher: Publisher) -> AsyncGenerator[bytes, None]:
        key = Key(ask["request_id"], "talker")
        why: str | None = "cancelled"
        try:
            yield _event(type="started", codes=str(publisher.reference(key)), prompt_tokens=17)
            for frame in range(min(self.frames, ask.get("max_frames", self.frames))):
                await self._turn(frame)
                if frame == self.breaks_at:
                    why = "the engine died"
                    raise Broken
                publisher.publish(key, {"codes": _rows(codes_of(ask.get("seed", 42), frame))})
                yield _event(type="frames", frames=frame + 1)
            why = None
            yield _event(type="done", frames=frame + 1 if self.frames else 0, reason="stop")
            yield b"data: [DONE]\n\n"
        finally:
            if why == "cancelled":
                self.left.append(ask["request_id"])
            publisher.close(key, why)

    async def _turn(self, frame: int) -> None:
        async with self.moved:
            await self.moved.wait_for(lambda: self.may_speak is None or frame < self.may_speak)


@dataclass
class FakeCode2Wav:
    """`asked` has every body, `left` the references whose client left. `breaks_after` so many samples of its next
    requests it breaks off, `ends_after` so many it ends as if that were all; `chunk` is how many bytes it sends at
    once."""

    model: str = MODEL
    breaks_after: int | None = None
    ends_after: int | None = None
    chunk: int = 7001
    asked: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    url: str = ""

    async def pcm(self, ask: dict[str, Any], puller: Puller) -> AsyncGenerator[bytes, None]:
        """An odd number of bytes at once, as a connection may give them."""
        held, begin, sent, whole = b"", ask.get("from_sample", 0) * 2, 0, False
        try:
            async with aclosing(puller.frames(Reference.parse(ask["codes"]))) as frames:
                made, total = b"", 0
                async for frame in frames:
                    code = int(np.frombuffer(frame.rows["codes"].data, dtype=np.int32)[0])
                    made += _frame_sound(code).tobytes()
                    total += 1
                    ready = (total * SAMPLES - TAIL) * 2
                    held += made[max(begin, sent) : ready]
                    sent = max(begin, sent, ready)
                    while len(held) >= self.chunk:
                        yield held[: self.chunk]
                        held = held[self.chunk :]
                    if self.breaks_after is not None and (sent - begin) // 2 >= self.breaks_after:
                        whole = True
                        raise Broken
                    if self.ends_after is not None and (sent - begin) // 2 >= self.ends_after:
                        break
            whole = True
            if held:
                yield held
        except DuetError:
            whole = True
            raise
        finally:
            if not whole:
                self.left.append(ask["codes"])


@asynccontextmanager
async def talker_server(talker: FakeTalker) -> AsyncIterator[FakeTalker]:
    identity = {"stage": "talker", "model": talker.model, "speakers": list(talker.speakers)}
    with Publisher() as publisher:

        async def speak(request: Request) -> Response:
            ask = json.loads(await request.body())
            talker.asked.append(ask)
            if talker.refuses is not None:
                status, error = talker.refuses
                return JSONResponse({"error": error}, status)
            if ask.get("speaker", talker.speakers[0]) not in talker.speakers:
                return _refused(SpeakerUnknown(f"speaker is {ask['speaker']!r}", param="speaker"), 400)
            return _streaming(request, talker.events(ask, publisher), "text/event-stream")

        app = _app(talker.model, identity, Route("/v1/speech", speak, methods=["POST"]))
        async with _served(app) as talker.url:
            yield talker


@asynccontextmanager
async def code2wav_server(code2wav: FakeCode2Wav) -> AsyncIterator[FakeCode2Wav]:
    identity = {"stage": "code2wav", "model": code2wav.model}
    async with Puller(lost_after=1.0) as puller:

        async def speak(request: Request) -> Response:
            ask = json.loads(await request.body())
            code2wav.asked.append(ask)
            try:
                Reference.parse(ask["codes"])
            except DuetError as e:
                return _refused(e, 400)
            audio = code2wav.pcm(ask, puller)
            first, gone = asyncio.ensure_future(anext(audio, b"")), asyncio.ensure_future(_left(request))
            try:
                await asyncio.wait({first, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    return Response(status_code=499)
                head = first.result()
            except Broken:
                request.scope["extensions"][BREAK_OFF]()
                return Response(status_code=499)
            except DuetError as e:
                return _refused(e, e.status)
            finally:
                await end(first, gone)
            told = {"x-duet-sample-rate": "24000", "x-duet-samples-per-frame": str(SAMPLES)}
            told |= {"x-duet-tail-samples": str(TAIL)}
            return _streaming(request, audio, "audio/pcm", head, told)

        app = _app(code2wav.model, identity, Route("/v1/code2wav", speak, methods=["POST"]))
        async with _served(app) as code2wav.url:
            yield code2wav


def _app(model: str, identity: dict[str, Any], route: Route) -> Starlette:
    async def health(request: Request) -> Response:
        return Response()

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": model, "object": "model"}]})

    async def who(request: Request) -> Response:
        return JSONResponse(identity)

    return Starlette(
        routes=[Route("/health", health), Route("/v1/models", models), Route("/duet/identity", who), route]
    )


@asynccontextmanager
async def _served(app: Starlette) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with serving(app, sock):
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def _streaming(
    request: Request,
    parts: AsyncGenerator[bytes, None],
    media_type: str,
    head: bytes = b"",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> StreamingResponse:
    """Breaks the connection off where the parts do."""

    async def body() -> AsyncGenerator[bytes, None]:
        async with aclosing(parts):
            try:
                if head:
                    yield head
                async for part in parts:
                    yield part
            except (Broken, DuetError):
                request.scope["extensions"][BREAK_OFF]()
                await asyncio.Event().wait()

    return StreamingResponse(body(), headers=headers, media_type=media_type)


def _refused(e: DuetError, status: int) -> JSONResponse:
    return JSONResponse({"error": {"message": e.message, "type": e.type, "param": e.param, "code": e.code}}, status)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(**event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _rows(codes: Any) -> Rows:
    return Rows.of("int32", codes.shape, codes.data)
