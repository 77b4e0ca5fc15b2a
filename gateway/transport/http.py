"""Engines over HTTP/1.1, by aiohttp.

Nothing is ever sent twice here: whether a request may be made again is not a transport's to decide. So that a pooled
connection is not found dead, none is used again after standing idle for nearly the 5 s after which vLLM closes it; one
that the engine has already closed is dropped from the pool as that is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import aiohttp

from common.engine import Engine
from common.errors import EngineBroken, EngineTimeout, EngineUnreachable
from gateway.transport.port import Deadlines, Reply

KEEP_ALIVE = 4.0
"""Seconds; below vLLM's `VLLM_HTTP_TIMEOUT_KEEP_ALIVE` of 5."""
READ_BUFFER = 2**18
"""Bytes that may wait for a slow client before the engine is held back."""


class HttpReplyStream:
    def __init__(self, engine: Engine, response: aiohttp.ClientResponse, idle: float) -> None:
        self._engine = engine
        self._response = response
        self._idle = idle
        self.status = response.status
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._idle):
                    chunk = await self._response.content.readany()
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
    """`api_key` is sent to every engine as a bearer token. Use between `start` and `aclose`, in one event loop."""

    def __init__(self, *, api_key: str | None = None) -> None:
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key is not None else {}
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, use_dns_cache=True),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self._headers,
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, engine: Engine, path: str, *, timeout: float) -> Reply:
        deadlines = Deadlines(connect=timeout, headers=timeout, idle=timeout)
        stream = await self._call("GET", engine, path, None, {}, deadlines)
        try:
            return Reply(stream.status, stream.headers, await stream.read())
        except EngineBroken as e:
            raise EngineUnreachable(e.message, engine=engine.id) from None
        finally:
            stream.close()

    async def post(
        self, engine: Engine, path: str, body: bytes, *, headers: Mapping[str, str], deadlines: Deadlines
    ) -> HttpReplyStream:
        return await self._call("POST", engine, path, body, {"content-type": "application/json", **headers}, deadlines)

    async def _call(
        self, method: str, engine: Engine, path: str, body: bytes | None, headers: Mapping[str, str], bounds: Deadlines
    ) -> HttpReplyStream:
        assert self._session is not None, "the client was not started"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect)
        try:
            async with asyncio.timeout(bounds.connect + bounds.headers):
                response = await self._session.request(
                    method, engine.url + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            raise EngineTimeout(
                f"engine {engine.id} did not accept a connection within {bounds.connect:g} s", engine=engine.id
            ) from None
        except TimeoutError:
            raise EngineTimeout(
                f"engine {engine.id} did not answer {path} within {bounds.headers:g} s", engine=engine.id
            ) from None
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, OSError) as e:
            raise EngineUnreachable(f"engine {engine.id} cannot be reached: {_words(e)}", engine=engine.id) from None
        except aiohttp.ClientError as e:
            raise EngineBroken(f"engine {engine.id} sent no HTTP reply: {_words(e)}", engine=engine.id) from None
        return HttpReplyStream(engine, response, bounds.idle)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
