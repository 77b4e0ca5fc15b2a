"""The HTTP face: vLLM's paths, and `/sim/…` to look inside and to make things go wrong.

| path | |
| --- | --- |
| `GET /health`, `GET /v1/models`, `GET /metrics`, `POST /v1/chat/completions`, `POST /v1/completions` | vLLM's |
| `GET /duet/identity` | ours: where a Talker hears the engine |
| `GET /sim/calls` | what was asked, oldest first |
| `GET`, `POST`, `DELETE /sim/faults` | the faults in force; one more, as JSON of `faults.Fault`; none |
| `POST /sim/kv/fetch`, `POST /sim/kv/release` | the side channel between engines |
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from engines.sim import identity, replies, shapes
from engines.sim.ask import Ask, SimRefused, read
from engines.sim.calls import Call
from engines.sim.engine import DEAD, GenerationFailed, SimEngine
from engines.sim.faults import Fault
from engines.sim.metrics import exposition
from engines.sim.server import BREAK_OFF
from engines.sim.shapes import Head

LEFT = 499
"""What stands in a call's `status` where its client left before there was one. It is never sent."""


def create_app(engine: SimEngine) -> Starlette:
    face, inside = Face(engine), Inside(engine)
    return Starlette(
        routes=[
            Route("/health", face.health),
            Route("/v1/models", face.models),
            Route("/v1/chat/completions", face.complete, methods=["POST"]),
            Route("/v1/completions", face.complete, methods=["POST"]),
            Route("/metrics", face.metrics),
            Route(identity.PATH, identity.Identity(engine).__call__),
            Route("/sim/kv/{what}", inside.kv, methods=["POST"]),
            Route("/sim/faults", inside.faults, methods=["GET", "POST", "DELETE"]),
            Route("/sim/calls", inside.calls),
        ],
        exception_handlers={HTTPException: _detail},
    )


class Face:
    """What vLLM shows."""

    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine
        self._created = int(time.time())

    async def health(self, request: Request) -> Response:
        fault = self.engine.faults.take("health")
        if fault is not None and fault.mode == "drop":
            request.scope["extensions"][BREAK_OFF]()
        if fault is not None and fault.mode in ("drop", "hang"):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            return Response(status_code=LEFT)
        if fault is not None and fault.mode == "status":
            return Response(status_code=fault.status)
        return Response(status_code=503 if self.engine.dead else 200)

    async def models(self, request: Request) -> Response:
        if not self._may(request):
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        return JSONResponse(shapes.models(self.engine.model, self.engine.max_model_len, self._created))

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(exposition(self.engine))

    async def complete(self, request: Request) -> Response:
        raw = await request.body()
        call = Call(request.method, request.url.path, dict(request.headers), _json(raw))
        self.engine.calls.append(call)
        if not self._may(request):
            reply: Response = JSONResponse({"error": "Unauthorized"}, status_code=401)
        else:
            reply = await self._answered(request, call, raw)
        call.status = reply.status_code
        if not isinstance(reply, StreamingResponse):
            call.close("done")
        return reply

    def _may(self, request: Request) -> bool:
        key = self.engine.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    async def _answered(self, request: Request, call: Call, raw: bytes) -> Response:
        fault = self.engine.faults.take(call.leg)
        if fault is not None and fault.mode == "status":
            return _error(fault.status, fault.message, "InternalServerError")
        if self.engine.dead:
            return _error(500, DEAD, "InternalServerError")
        chat = call.path.endswith("/chat/completions")
        try:
            engine = self.engine
            ask = read(chat, raw, model=engine.model, max_model_len=engine.max_model_len, rotated=engine.rotated)
        except SimRefused as e:
            await self.engine.refused(call.body)
            return _refusal(e)
        id_ = f"{'chatcmpl' if chat else 'cmpl'}-{request.headers.get('x-request-id') or uuid4().hex[:16]}"
        head = Head(chat, id_, self.engine.model, int(time.time()))
        work = asyncio.ensure_future(self._work(request, head, ask, call, fault))
        if not await _or_left(request, work):
            call.close("client left")
            return Response(status_code=LEFT)
        return work.result()

    async def _work(self, request: Request, head: Head, ask: Ask, call: Call, fault: Fault | None) -> Response:
        break_off = request.scope["extensions"][BREAK_OFF]
        if fault is not None and fault.mode == "drop":
            call.close("broke off")
            await _broken(break_off)
        if fault is not None and fault.mode == "hang":
            await asyncio.Event().wait()
        if ask.stream:
            return StreamingResponse(self._events(head, ask, call, fault, break_off), media_type="text/event-stream")
        self.engine.running += 1
        try:
            body = await replies.whole(self.engine, head, ask, call, fault)
        except GenerationFailed as e:
            return JSONResponse(shapes.failure(e.message, e.status), status_code=e.status)
        finally:
            self.engine.running -= 1
        if fault is not None and fault.mode == "drop_midway":
            return _half(call, body, break_off)
        return JSONResponse(body)

    async def _events(
        self, head: Head, ask: Ask, call: Call, fault: Fault | None, break_off: Callable[[], None]
    ) -> AsyncIterator[str]:
        self.engine.running += 1
        try:
            async for event in replies.stream(self.engine, head, ask, call, fault):
                yield event
            call.close("done")
        except replies.BrokeOff:
            call.close("broke off")
            await _broken(break_off)
        finally:
            self.engine.running -= 1
            call.close("client left")  # unless it is closed already


class Inside:
    """What only the simulator shows."""

    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine

    async def kv(self, request: Request) -> Response:
        names = await request.json()
        if names["engine"] != self.engine.id:
            return JSONResponse({"error": f"this is engine {self.engine.id}"}, status_code=404)
        if request.path_params["what"] == "release":
            self.engine.kv.release(names["request"])
            return JSONResponse({})
        return JSONResponse({"state": self.engine.kv.fetch(names["request"])})

    async def faults(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.engine.faults.clear()
        if request.method == "POST":
            try:
                self.engine.faults.append(Fault.of(await request.json()))
            except ValueError as e:
                return _error(400, str(e), "BadRequestError")
        return JSONResponse([asdict(fault) for fault in self.engine.faults])

    async def calls(self, request: Request) -> Response:
        return JSONResponse([{**asdict(call), "leg": call.leg} for call in self.engine.calls])


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _detail(request: Request, exc: Exception) -> Response:
    """Paths and methods that there are not: FastAPI's shape, which vLLM leaves as it is."""
    assert isinstance(exc, HTTPException)
    return JSONResponse({"detail": exc.detail}, status_code=exc.status_code, headers=exc.headers)


def _error(status: int, message: str, type_: str, param: str | None = None) -> Response:
    return JSONResponse(shapes.error(message, status, type_=type_, param=param), status_code=status)


def _refusal(e: SimRefused) -> Response:
    """vLLM's shape; FastAPI's for a body that could not even be read as text."""
    if not e.type:
        return JSONResponse({"detail": e.message}, status_code=e.status)
    return _error(e.status, e.message, e.type, e.param)


def _half(call: Call, body: Any, break_off: Callable[[], None]) -> Response:
    whole = json.dumps(body).encode()

    async def parts() -> AsyncIterator[bytes]:
        yield whole[: len(whole) // 2]
        call.close("broke off")
        await _broken(break_off)

    headers = {"content-length": str(len(whole))}
    return StreamingResponse(parts(), headers=headers, media_type="application/json")


async def _broken(break_off: Callable[[], None]) -> None:
    """Ends the connection, and waits for the server to see that and to cancel this: nothing more may be sent."""
    break_off()
    await asyncio.Event().wait()


async def _or_left(request: Request, work: asyncio.Future[Any]) -> bool:
    """Whether `work` was done before the client left; else it is cancelled. What it raises comes out of `result`."""
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
