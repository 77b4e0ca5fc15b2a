"""The FastAPI part: everything but the hot paths. One handler turns every error into OpenAI's shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from common.errors import BadRequest, DuetError, MethodNotAllowed, NotFound
from gateway.api import admin, health, metrics, models
from gateway.api.openapi import add_hot_paths
from gateway.wire.errors import error_reply

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(lifespan: Lifespan) -> FastAPI:
    """The lifespan sets `app.state.services`."""
    app = FastAPI(
        title="Duet",
        summary="A prefill/decode gateway for vLLM",
        lifespan=lifespan,
        docs_url="/docs",
        redoc_url=None,
    )
    for room in (health, models, admin, metrics):
        app.include_router(room.router)
    app.add_exception_handler(DuetError, _duet_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _fault)
    add_hot_paths(app)
    return app


def render(error: DuetError) -> Response:
    status, headers, body = error_reply(error)
    return Response(body, status_code=status, headers={k.decode(): v.decode() for k, v in headers})


async def _duet_error(request: Request, error: Any) -> Response:
    return render(error)


async def _http_error(request: Request, error: Any) -> Response:
    """FastAPI makes one also of what goes wrong while it reads a body."""
    if isinstance(error.__cause__, DuetError):
        return render(error.__cause__)
    if error.status_code == 405:
        return render(MethodNotAllowed(f"method {request.method} is not possible on {request.url.path}"))
    return render(NotFound(f"there is nothing at {request.url.path}"))


async def _validation_error(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return render(BadRequest(f"{where}: {first['msg']}; got {first['input']!r:.80}", param=where))


async def _fault(request: Request, error: Exception) -> Response:
    return render(DuetError("the gateway failed at this request; its log has the reason"))
