"""A server that answers as it is told, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.unit.cli.listening import QuietHandler, listening


@dataclass
class OpenAIServer:
    """`models` are the names it serves, `status` and `body` its reply to a chat."""

    models: list[str] = field(default_factory=lambda: ["m1", "m2"])
    status: int = 200
    body: bytes = b""
    models_body: bytes | None = None
    hangs: bool = False
    """After its body a chat is left open until the client goes."""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and body of each request; a GET has an empty one."""
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    def models_reply(self) -> bytes:
        if self.models_body is not None:
            return self.models_body
        return json.dumps({"object": "list", "data": [{"id": name} for name in self.models]}).encode()


def sse(*events: Any) -> bytes:
    """Events of a stream; a string is sent as it is."""
    data = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return b"".join(f"data: {one}\n\n".encode() for one in data)


def piece(text: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


@contextmanager
def serving(server: OpenAIServer) -> Iterator[OpenAIServer]:
    stop = threading.Event()

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._ask({})
            self.reply(200, server.models_reply())

        def do_POST(self) -> None:
            self._ask(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.reply(server.status, server.body)
            if server.hangs:
                self.wfile.flush()
                stop.wait(30)

        def _ask(self, body: dict[str, Any]) -> None:
            server.asked.append((self.path, body))
            server.keys.append(self.headers.get("authorization"))

    with listening(Handler) as server.url:
        try:
            yield server
        finally:
            stop.set()
