"""The paths that carry traffic, as raw ASGI: read the body, run the request, watch for the client's leaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any

from common.errors import BadRequest, DuetError, MethodNotAllowed
from gateway.api.auth import Keys
from gateway.api.body import Bodies, Receive
from gateway.api.sink import AsgiSink, Send
from gateway.dispatch import Coordinator
from gateway.telemetry import Metrics
from gateway.wire import parse, with_identities
from gateway.wire.errors import error_reply, stream_error

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]

HOT_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
MAX_REQUEST_ID = 256
"""Characters of a client's `x-request-id`."""


class ClientGone(Exception):
    """The client left before its body was whole: there is nobody to answer."""


class HotPath:
    def __init__(self, coordinator: Coordinator, keys: Keys, metrics: Metrics, bodies: Bodies) -> None:
        self._coordinator = coordinator
        self._keys = keys
        self._metrics = metrics
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value for name, value in scope["headers"] if name in _READ}
        request_id = self._coordinator.new_id()
        echo = headers.get(b"x-request-id", b"")
        sink = AsgiSink(
            send,
            [
                (b"x-request-id", echo[:MAX_REQUEST_ID] or request_id.encode()),
                (b"x-duet-request-id", request_id.encode()),
            ],
        )
        try:
            await self._answer(scope, headers, receive, sink, request_id)
        except ClientGone:
            return
        except DuetError as e:
            await self._refuse(sink, e)
        except Exception:
            log.exception("request %s failed by a fault of the gateway", request_id)
            error = DuetError("the gateway failed at this request; its log has the reason under the request's id")
            if not sink.started:
                await self._refuse(sink, error)
            else:
                await sink.end(stream_error(error))

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, sink: AsgiSink, request_id: str
    ) -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"method {scope['method']} is not possible here; expected POST")
        authorization = headers.get(b"authorization")
        self._keys.check_client(authorization.decode("latin-1") if authorization is not None else None)
        echo = headers.get(b"x-request-id")
        if echo is not None and len(echo) > MAX_REQUEST_ID:
            raise BadRequest(f"header x-request-id has {len(echo)} characters; expected at most {MAX_REQUEST_ID}")
        body = await self._read(headers, receive)
        request = with_identities(parse(scope["path"], body, headers.get(b"content-type")), request_id)
        client_id = echo.decode("latin-1") if echo else None
        run = asyncio.ensure_future(self._coordinator.run(request_id, request, sink, client_id=client_id))
        await _until_gone(run, receive)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body. Raises PayloadTooLarge as soon as it is known to be too long."""
        self._bodies.check_declared(headers.get(b"content-length"))
        parts, receive = [], self._bodies.bounded(receive)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _refuse(self, sink: AsgiSink, error: DuetError) -> None:
        status, headers, body = error_reply(error)
        self._metrics.saw(error)
        await sink.start(status, headers)
        await sink.end(body)


_READ = frozenset({b"x-request-id", b"authorization", b"content-length", b"content-type"})


async def _until_gone(run: asyncio.Future[None], receive: Receive) -> None:
    """Waits for the run. If the client leaves first the run is cancelled, and seen to its end."""
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({run, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            run.cancel()
            await asyncio.wait({run})
    finally:
        gone.cancel()
        if not run.done():  # this call itself was cancelled: the server is going down
            run.cancel()
            await asyncio.wait({run})
    if not run.cancelled():
        run.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
