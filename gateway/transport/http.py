"""Engines over HTTP/1.1, by aiohttp.

**No request that carries work is sent twice here.** A POST whose connection breaks before the reply's headers may have
been lost, or may be running: from outside both look the same, and a decode that runs twice reads KV that is no longer
there. So the caller is told (EngineUnreachable), and whether to try again is the caller's decision, seen and counted.
What can be done without that risk is done before a byte leaves: `pool.py` gives out no connection that has stood idle
too long or that the engine has closed. What is left is an engine that closes while the request is on the wire.
(GETs change nothing in an engine; aiohttp repeats one of them once on such a failure.)

Proxies from the environment are not used, nothing is decompressed, and engines are sent no headers but the caller's,
`Host`, `Content-Length` and, with a key, `Authorization`.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from math import inf, isfinite
from types import SimpleNamespace
from weakref import WeakSet

import aiohttp

from common.engine import Engine
from common.errors import EngineBroken, EngineTimeout, EngineUnreachable
from gateway.transport.awake import within
from gateway.transport.patience import Patience
from gateway.transport.pool import EngineConnector
from gateway.transport.port import Deadlines, Reply, Sent

READ_BUFFER = 2**18
"""Bytes of one reply that may wait for a slow client; at twice that, the engine is held back."""
MAX_WHOLE = 2**28
"""Bytes of a reply that is read whole; an engine that goes on is out of its mind."""
BIG_BODY = 2**20
"""Bytes; a longer request body is written in pieces, so that others get their turn in between."""


class Departure:
    """When a request began to leave: from then on its headers are waited for, and everything behind them."""

    def __init__(self, headers: float, sent: Sent) -> None:
        self.at: float | None = None
        """By the event loop's clock. None before there is a connection: the engine has seen nothing then."""
        self.bound = asyncio.timeout(None)
        self._headers = headers
        self._sent = sent

    def now(self) -> None:
        self._sent.maybe = True
        self.at = asyncio.get_running_loop().time()
        self.bound.reschedule(_finite(self.at + self._headers))

    def not_yet(self) -> None:
        """The connection that it had was of no use, and another one is made."""
        self.at, self._sent.maybe = None, False
        self.bound.reschedule(None)


class HttpReplyStream:
    def __init__(self, engine: Engine, response: aiohttp.ClientResponse, patience: Patience) -> None:
        self._engine = engine
        self._response = response
        self._patience = patience
        self.status = response.status
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}

    async def chunks(self, *, every: bool = True) -> AsyncIterator[bytes]:
        content, patience, clock = self._response.content, self._patience, asyncio.get_running_loop().time
        while True:
            since = clock()
            left = patience.left(since)
            try:
                chunk = content.read_nowait() if left > 0 else b""
                if not chunk:  # a deadline costs more than a token: none for what is here already
                    async with asyncio.timeout(_finite(left)):
                        chunk = await content.readany()
            except TimeoutError:
                raise EngineTimeout(
                    f"engine {self._engine.id} {patience.why(clock())}", engine=self._engine.id
                ) from None
            except (aiohttp.ClientError, OSError) as e:
                raise EngineBroken(
                    f"engine {self._engine.id} broke off its reply: {_words(e)}", engine=self._engine.id
                ) from None
            if not chunk:
                return
            if every:
                patience.renew()
            else:
                patience.waited(clock() - since)
            yield chunk

    def said(self) -> None:
        self._patience.renew()

    async def read(self) -> bytes:
        chunks, size = [], 0
        async for chunk in self.chunks():
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_WHOLE:
                raise EngineBroken(
                    f"engine {self._engine.id} sent a reply of more than {MAX_WHOLE} bytes", engine=self._engine.id
                )
        return b"".join(chunks)

    def close(self) -> None:
        self._response.close()  # a reply that was read to its end has given its connection back before


class HttpEngineClient:
    """`api_key` goes to every engine as a bearer token; `per_engine` bounds the connections to each, 0 for no bound
    (a request that waits for one is under its `connect` deadline).

    Use between `start` and `aclose`, in one event loop.
    """

    def __init__(self, *, api_key: str | None = None, per_engine: int = 0) -> None:
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key is not None else {}
        self._per_engine = per_engine
        self._session: aiohttp.ClientSession | None = None
        self._connector: EngineConnector
        self._streams: WeakSet[HttpReplyStream] = WeakSet()

    async def start(self) -> None:
        self._connector = EngineConnector(per_engine=self._per_engine)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self._headers,
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
            trace_configs=[_departures()],
        )

    async def aclose(self) -> None:
        """Closes every connection; replies that still stream end with EngineBroken."""
        for stream in list(self._streams):
            stream.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, engine: Engine, path: str, *, timeout: float) -> Reply:
        stream: HttpReplyStream | None = None
        try:
            async with within(timeout):
                stream = await self._call("GET", engine, path, None, {}, Deadlines(inf, inf, inf))
                return Reply(stream.status, stream.headers, await stream.read())
        except TimeoutError:
            raise _late(engine, f"did not answer {path}", timeout) from None
        except EngineBroken as e:
            raise EngineUnreachable(e.message, engine=engine.id) from None
        finally:
            if stream is not None:
                stream.close()

    async def post(
        self,
        engine: Engine,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        deadlines: Deadlines,
        sent: Sent | None = None,
    ) -> HttpReplyStream:
        data = io.BytesIO(body) if len(body) > BIG_BODY else body
        headers = {"content-type": "application/json", **headers}
        return await self._call("POST", engine, path, data, headers, deadlines, sent)

    async def _call(
        self,
        method: str,
        engine: Engine,
        path: str,
        data: bytes | io.BytesIO | None,
        headers: Mapping[str, str],
        bounds: Deadlines,
        sent: Sent | None = None,
    ) -> HttpReplyStream:
        if self._session is None:
            raise RuntimeError("the engine client is not started, or is closed")
        timeout = aiohttp.ClientTimeout(total=None, connect=_finite(bounds.connect))
        departure = Departure(bounds.headers, sent if sent is not None else Sent())
        try:
            async with departure.bound:
                response = await self._session.request(
                    method,
                    engine.url + path,
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    trace_request_ctx=departure,
                )
        except aiohttp.ConnectionTimeoutError:
            raise _late(engine, "did not accept a connection", bounds.connect, worked=False) from None
        except TimeoutError:
            raise _late(engine, f"did not answer {path}", bounds.headers) from None
        except (aiohttp.ClientConnectionError, OSError) as e:
            self._connector.distrust(engine.url)
            raise EngineUnreachable(
                f"engine {engine.id} cannot be reached: {_words(e)}", engine=engine.id, worked=departure.at is not None
            ) from None
        except aiohttp.ClientError as e:
            raise EngineBroken(f"engine {engine.id} sent no HTTP reply: {_words(e)}", engine=engine.id) from None
        now = asyncio.get_running_loop().time()
        since = departure.at if departure.at is not None else now
        stream = HttpReplyStream(engine, response, Patience(bounds, since, now))
        self._streams.add(stream)
        return stream


def _finite(seconds: float) -> float | None:
    """As asyncio wants it: uvloop takes no infinity."""
    return seconds if isfinite(seconds) else None


def _departures() -> aiohttp.TraceConfig:
    """Tells each request's `Departure` when it has its connection."""
    tracing = aiohttp.TraceConfig()

    async def connected(_session: aiohttp.ClientSession, ctx: SimpleNamespace, _params: object) -> None:
        ctx.trace_request_ctx.now()

    async def connecting(_session: aiohttp.ClientSession, ctx: SimpleNamespace, _params: object) -> None:
        ctx.trace_request_ctx.not_yet()

    for signal in (tracing.on_connection_create_start, tracing.on_connection_queued_start):
        signal.append(connecting)
    tracing.on_connection_create_end.append(connected)
    tracing.on_connection_reuseconn.append(connected)
    return tracing


def _late(engine: Engine, what: str, seconds: float, *, worked: bool = True) -> EngineTimeout:
    return EngineTimeout(f"engine {engine.id} {what} within {seconds:g} s", engine=engine.id, worked=worked)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
