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
from weakref import WeakSet

import aiohttp

from common.engine import Engine
from common.errors import EngineBroken, EngineTimeout, EngineUnreachable
from gateway.transport.pool import EngineConnector
from gateway.transport.port import Deadlines, Reply

READ_BUFFER = 2**18
"""Bytes of one reply that may wait for a slow client; at twice that, the engine is held back."""
BIG_BODY = 2**20
"""Bytes; a longer request body is written in pieces, so that others get their turn in between."""


class HttpReplyStream:
    def __init__(self, engine: Engine, response: aiohttp.ClientResponse, idle: float) -> None:
        self._engine = engine
        self._response = response
        self._idle = idle
        self.status = response.status
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._response.content
        while True:
            try:
                chunk = content.read_nowait()  # a deadline costs more than a token: none for what is here already
                if not chunk:
                    async with asyncio.timeout(self._idle):
                        chunk = await content.readany()
            except TimeoutError:
                raise EngineTimeout(
                    f"engine {self._engine.id} sent nothing for {self._idle:g} s", engine=self._engine.id
                ) from None
            except (aiohttp.ClientError, OSError) as e:
                raise EngineBroken(
                    f"engine {self._engine.id} broke off its reply: {_words(e)}", engine=self._engine.id
                ) from None
            if not chunk:
                return
            yield chunk

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

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
            async with asyncio.timeout(timeout):
                stream = await self._call("GET", engine, path, None, {}, Deadlines(timeout, timeout, timeout))
                return Reply(stream.status, stream.headers, await stream.read())
        except TimeoutError:
            raise _late(engine, f"did not answer {path}", timeout) from None
        except EngineBroken as e:
            raise EngineUnreachable(e.message, engine=engine.id) from None
        finally:
            if stream is not None:
                stream.close()

    async def post(
        self, engine: Engine, path: str, body: bytes, *, headers: Mapping[str, str], deadlines: Deadlines
    ) -> HttpReplyStream:
        data = io.BytesIO(body) if len(body) > BIG_BODY else body
        return await self._call("POST", engine, path, data, {"content-type": "application/json", **headers}, deadlines)

    async def _call(
        self,
        method: str,
        engine: Engine,
        path: str,
        data: bytes | io.BytesIO | None,
        headers: Mapping[str, str],
        bounds: Deadlines,
    ) -> HttpReplyStream:
        if self._session is None:
            raise RuntimeError("the engine client is not started, or is closed")
        timeout = aiohttp.ClientTimeout(total=None, connect=bounds.connect)
        try:
            async with asyncio.timeout(bounds.connect + bounds.headers):
                response = await self._session.request(
                    method, engine.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            raise _late(engine, "did not accept a connection", bounds.connect) from None
        except TimeoutError:
            raise _late(engine, f"did not answer {path}", bounds.headers) from None
        except (aiohttp.ClientConnectionError, OSError) as e:
            self._connector.distrust(engine.url)
            raise EngineUnreachable(f"engine {engine.id} cannot be reached: {_words(e)}", engine=engine.id) from None
        except aiohttp.ClientError as e:
            raise EngineBroken(f"engine {engine.id} sent no HTTP reply: {_words(e)}", engine=engine.id) from None
        stream = HttpReplyStream(engine, response, bounds.idle)
        self._streams.add(stream)
        return stream


def _late(engine: Engine, what: str, seconds: float) -> EngineTimeout:
    return EngineTimeout(f"engine {engine.id} {what} within {seconds:g} s", engine=engine.id)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
