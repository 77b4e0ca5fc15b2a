"""What nginx says itself, before a gateway that is always ready."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from common.errors import PayloadTooLarge
from tests.integration.balanced import balancer

READY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TOO_LONG = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n"


async def ready(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(READY)
    writer.close()
    await writer.wait_closed()


async def test_a_body_that_is_too_long_is_refused_as_a_gateway_would(tmp_path: Path) -> None:
    async with await asyncio.start_server(ready, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with balancer([f"127.0.0.1:{port}"] * 2, tmp_path) as url, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(TOO_LONG)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"content-type: application/json\r\n" in head.lower()
    error = json.loads(body)["error"]
    assert (error["type"], error["code"], error["param"]) == (PayloadTooLarge.type, PayloadTooLarge.code, None)
    assert "64 MiB" in error["message"]
