"""The HTTP face: vLLM's paths, and `/sim/…` to look inside and to make things go wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from engines.sim import shapes, words
from engines.sim.engine import Call, Job, SimEngine, SimRefused
from engines.sim.faults import Fault
from engines.sim.server import BREAK_OFF


def create_app(engine: SimEngine) -> Starlette:
    face = Face(engine)
    return Starlette(
        routes=[
            Route("/health", face.health),
            Route("/v1/models", face.models),
            Route("/v1/chat/completions", face.complete, methods=["POST"]),
            Route("/v1/completions", face.complete, methods=["POST"]),
            Route("/metrics", face.metrics),
            Route("/sim/kv/{id}", face.fetch, methods=["POST"]),
            Route("/sim/faults", face.fail, methods=["POST"]),
            Route("/sim/calls", face.calls),
        ]
    )


class Face:
    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine

    async def health(self, request: Request) -> Response:
        return Response()

    async def models(self, request: Request) -> Response:
        card = {"id": self.engine.model, "object": "model", "created": 0, "owned_by": "vllm", "root": "sim",
                "parent": None, "max_model_len": self.engine.max_model_len, "permission": []}  # fmt: skip
        return JSONResponse({"object": "list", "data": [card]})

    async def metrics(self, request: Request) -> Response:
        self.engine.kv.expire()
        labels = f'engine="0",model_name="{self.engine.model}"'
        lines = [f"vllm:num_requests_running{{{labels}}} {self.engine.running}"]
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
            count = float(self.engine.sources[source])
            lines.append(f'vllm:prompt_tokens_by_source_total{{{labels},source="{source}"}} {count}')
        lines.append(f"vllm:nixl_num_kv_expired_reqs_total{{{labels}}} {float(self.engine.kv.expired)}")
        return PlainTextResponse("\n".join(lines) + "\n")

    async def fetch(self, request: Request) -> Response:
        held = self.engine.kv.fetch(request.path_params["id"])
        return JSONResponse(asdict(held) if held is not None else None)

    async def fail(self, request: Request) -> Response:
        self.engine.faults.append(Fault.of(await request.json()))
        return Response(status_code=204)

    async def calls(self, request: Request) -> Response:
        return JSONResponse([asdict(call) for call in self.engine.calls])

    async def complete(self, request: Request) -> Response:
        try:
            body = await request.json()
        except ValueError as e:
            return _error(400, f"JSON decode error: {e}", "BadRequestError")
        call = self.engine.record(request.url.path, dict(request.headers), json.loads(json.dumps(body)))
        chat = request.url.path.endswith("/chat/completions")
        id_ = f"{'chatcmpl' if chat else 'cmpl'}-{request.headers.get('x-request-id') or uuid4().hex}"
        self.engine.running += 1
        try:
            return await self._answer(request, call, chat, id_, body)
        except SimRefused as e:
            call.end = "done"
            return _error(e.status, e.message, e.type, e.param)
        finally:
            self.engine.running -= 1

    async def _answer(self, request: Request, call: Call, chat: bool, id_: str, body: dict[str, Any]) -> Response:
        fault = self.engine.fault()
        if fault is not None and fault.mode == "status":
            raise SimRefused(fault.status, fault.message, "InternalServerError")
        if fault is not None and fault.mode == "drop":
            call.end = "broke off"
            request.scope["extensions"][BREAK_OFF]()
            return Response()
        work = asyncio.ensure_future(self._work(chat, id_, body, fault))
        if not await _or_left(request, work):
            call.end = "client left"
            return Response(status_code=499)
        job, tokens = work.result()
        if body.get("stream"):
            events = self._stream(call, job, fault, request.scope["extensions"][BREAK_OFF])
            return StreamingResponse(events, media_type="text/event-stream")
        call.end = "done"
        return JSONResponse(self._reply(job, tokens, fault))

    async def _work(self, chat: bool, id_: str, body: dict[str, Any], fault: Fault | None) -> tuple[Job, list[int]]:
        if fault is not None and fault.mode == "hang":
            await asyncio.Event().wait()
        job = await self.engine.accept(chat, id_, body)
        return job, [] if body.get("stream") else [token async for token in self.engine.tokens(job)]

    def _reply(self, job: Job, tokens: list[int], fault: Fault | None) -> dict[str, Any]:
        kv = self.engine.handoff(job)
        if kv is not None and fault is not None and fault.mode == "null_handoff":
            kv = None
        if kv is not None and fault is not None and fault.mode == "partial_handoff":
            del kv[fault.without]
        finish = "error" if fault is not None and fault.mode == "finish_error" else "length"
        wants = bool(job.body.get("return_token_ids"))
        text = "".join(map(words.decode, tokens))
        ids, prompt_ids = (tokens, job.prompt) if wants else (None, None)
        choices = [shapes.choice(job.chat, i, text, finish, ids, prompt_ids) for i in range(job.body.get("n") or 1)]
        use = shapes.usage(len(job.prompt), len(tokens) * len(choices), job.cached)
        return shapes.reply(job.chat, job.id, self.engine.model, choices, use, kv, prompt_ids)

    async def _stream(
        self, call: Call, job: Job, fault: Fault | None, break_off: Callable[[], None]
    ) -> AsyncIterator[str]:
        self.engine.running += 1
        try:
            async for event in self._events(job, fault):
                if event is None:
                    call.end = "broke off"
                    break_off()
                    return
                yield event
            call.end = "done"
        finally:
            self.engine.running -= 1
            call.end = call.end or "client left"

    async def _events(self, job: Job, fault: Fault | None) -> AsyncIterator[str | None]:
        """The stream's events; None where the connection breaks off."""
        chat, model, wants = job.chat, self.engine.model, bool(job.body.get("return_token_ids"))
        if chat:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            yield _event(shapes.chunk(chat, job.id, model, [role], prompt_token_ids=job.prompt if wants else None))
        count = 0
        async for token in self.engine.tokens(job):
            if fault is not None and count == fault.after:
                async for event in self._fail(fault):
                    yield event
                if fault.mode == "error_event":
                    return
            count += 1
            finish = None if count < job.limit else _finish(fault)
            ids = [token] if wants else None
            yield _event(shapes.chunk(chat, job.id, model, [shapes.delta(chat, 0, words.decode(token), finish, ids)]))
        if (job.body.get("stream_options") or {}).get("include_usage"):
            yield _event(shapes.chunk(chat, job.id, model, [], usage=shapes.usage(len(job.prompt), count, job.cached)))
        if fault is None or fault.mode != "no_done":
            yield "data: [DONE]\n\n"

    async def _fail(self, fault: Fault) -> AsyncIterator[str | None]:
        if fault.mode == "drop_midway":
            yield None
        if fault.mode == "hang_midway":
            await asyncio.Event().wait()
        if fault.mode == "error_event":
            yield _event(shapes.error(fault.message, 500, type_="InternalServerError"))
            yield "data: [DONE]\n\n"


def _finish(fault: Fault | None) -> str:
    return "error" if fault is not None and fault.mode == "finish_error" else "length"


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"


def _error(status: int, message: str, type_: str, param: str | None = None) -> Response:
    return JSONResponse(shapes.error(message, status, type_=type_, param=param), status_code=status)


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
